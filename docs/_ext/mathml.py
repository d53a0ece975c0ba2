"""Equations as MathML, written when the site is built: browsers show it without a script."""

import re
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml import converter

MATHML = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", MATHML)


def convert(latex, display="inline"):
    """Return LaTeX as MathML, with dots and bars as accents, which else are too small to see."""
    tree = ElementTree.fromstring(converter.convert(latex, display=display))
    for over in tree.iter(f"{{{MATHML}}}mover"):
        if len(over[1].text or "") == 1:
            over.set("accent", "true")
    return ElementTree.tostring(tree, encoding="unicode")


def to_mathml(latex, display):
    """Return LaTeX as MathML.

    A display may hold several equations with blank lines between them, or aligned lines.
    """
    latex = re.sub(r"\\text\{[^}]*\}", lambda text: text[0].replace(r"\_", "_"), latex.strip())
    latex = latex.replace("'", "\N{PRIME}")  # raised by itself, where a superscript is too small
    if not display:
        return convert(latex)
    parts = [part.strip() for part in re.split(r"\n\s*\n", latex)]
    written = (
        rf"\begin{{aligned}}{part}\end{{aligned}}"
        if r"\\" in part and r"\begin" not in part
        else part
        for part in parts
    )
    return "".join(convert(part, display="block") for part in written)


def _write_inline(translator, node):
    translator.body.append(to_mathml(node.astext(), display=False))
    raise nodes.SkipNode


def _write_display(translator, node):
    translator.body.append(f'<div class="math">{to_mathml(node.astext(), display=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    """Make this the way in which equations are written."""
    app.add_html_math_renderer("mathml", (_write_inline, None), (_write_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
