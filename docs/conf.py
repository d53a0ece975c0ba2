"""How the site is built, by ``make docs``: no network, every warning an error."""

import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.pycode import ModuleAnalyzer

import tauflow

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
from class_pages import describe_classes
from derived_pages import (
    TITLES,
    add_counts,
    count_tests,
    describe_pictures,
    hide_machine,
    mark_cells,
    write_llms,
    write_notebook,
    write_published,
)
from pictures import write_matplotlibrc

project = "tauflow"
author = "The tauflow developers"
project_copyright = f"2026, {author}"
release = version = tauflow.__version__

extensions = [
    "mathml",  # of docs/_ext, as the two modules above
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
html_math_renderer = "mathml"
exclude_patterns = [
    "_build",
    "examples/*.ipynb",
    "notebooks",
    *(f"gallery/{path.stem}.md" for path in Path(__file__).parent.glob("gallery/*.json")),
]
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_theme = "pydata_sphinx_theme"
html_title = "tauflow"
wide_pages = [
    "comparison",
    "leaderboards",
    "published",
    *(f"published/{n}" for n in TITLES),
]
html_theme_options = {
    "logo": {"text": f"tauflow {release}"},
    "navigation_with_keys": False,
    "show_nav_level": 1,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], **{name: [] for name in wide_pages}},
    "header_links_before_dropdown": 7,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"start": [], "index": []}
copybutton_exclude = ".linenos, .gp, .go"
html_context = {"default_mode": "auto"}
html_copy_source = False
html_show_sourcelink = False

# Pages: every block of Python on them is run, and its output shown.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 400  # of a cell, on a machine that has other work too
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "show"

# Pictures of pages and examples in the style of the library's own.
write_matplotlibrc(Path(__file__).parent / "_build" / "matplotlibrc")

# Examples run when the site is built, which takes some minutes; those that have not changed since
# the last build are not run again.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "plot_gallery": "True",
    "reset_modules": ("matplotlib", "pictures.set_style"),
    "image_scrapers": ("matplotlib",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "ignore_repr_types": r"torch\._C\.Generator",  # what torch.manual_seed returns
}

# Reference: signatures and docstrings.
autodoc_typehints = "signature"
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_context = {"classes": describe_classes()}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
nitpick_ignore = [  # named where types are checked only
    ("py:class", name)
    for name in ("Axes", "DataFrame", "Explanation", "Figure", "SubFigure", "ndarray", "nx.DiGraph")
]
napoleon_custom_sections = [("Arguments of the sequence module", "params_style")]

NOTEBOOK = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n"


def read_page(app, docname, source):
    """Make the blocks of Python of a page run, and the anchors of the gallery known.

    On GitHub pages are read as they are, and some lead to a file of the repository that the site
    has as a page. Those of docs/adding write files, so that a test runs them instead.
    """
    text = source[0]
    if docname == "changelog":
        text = (Path(app.srcdir).parent / "CHANGELOG.md").read_text(encoding="utf-8")
        text = re.sub(r"\[([^\]]*)\]\((?!https?:|docs/)[^)]*\)", r"\1", text)
        text = text.replace("](docs/", "](")
    if docname == "protocol":
        text = (Path(app.srcdir).parent / "papers/PROTOCOL.md").read_text(encoding="utf-8")
    text = text.replace("](../examples/README.rst)", "](examples/index.rst)")
    text = text.replace("](../papers/PROTOCOL.md)", "](protocol.md)")
    text = text.replace("](../papers/results/REPORT.md)", "](published.md)")
    text = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples/\1.rst)", text)
    if docname == "published":
        text = app.overview
    if docname == "tested":
        text = add_counts(app, text)
    if docname == "gallery/README":
        text += "\n```{toctree}\n:hidden:\n\nltc\ncfc\node-lstm\ngnode\n```\n"
    text = re.sub(r'^<a id="(.*?)"></a>$', r"(\1)=", text, flags=re.MULTILINE)
    if "/" not in docname.removeprefix("tutorials/") and "\n```python\n" in text:
        text = write_notebook(app, docname, text)
        text = NOTEBOOK + text.replace("\n```python\n", "\n```{code-cell} python\n")
    source[0] = text


def resolve(app, env, node, contnode):
    """Lead from the name of a thing to its place in the reference, wherever it is defined.

    What is not in the reference, such as a private module, stays text if it exists.
    """
    target = node.get("reftarget", "")
    tried = (_found(f"{place}.{target}".strip(".")) for place in _places(node))
    module = next((thing for thing in tried if thing is not None), None)
    tail = "." + target.rpartition(".")[2]
    known = {name: entry for name, entry in env.get_domain("py").objects.items() if tail in name}
    same = [n for n in known if n.endswith(tail) and (module is None or _found(n) is module)]
    if not same:
        return None if module is None else contnode
    entry = known[min(same, key=len)]
    uri = app.builder.get_relative_uri(node["refdoc"], entry.docname)
    return nodes.reference("", "", contnode, refuri=f"{uri}#{entry.node_id}")


def _places(node):
    """Yield where a name on a page may be looked up: around what is described there, innermost."""
    while node is not None:
        if isinstance(node, addnodes.desc) and node[0].get("ids"):
            thing = _found(name := node[0]["ids"][0])
            yield name
            if hasattr(thing, "cell_class"):
                yield f"{thing.cell_class.__module__}.{thing.cell_class.__name__}"
            yield getattr(thing, "__module__", "tauflow")
        node = node.parent
    yield from ("", "tauflow", "builtins", "torch")


@cache
def _found(name):
    """Return what a dotted name means, or None."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:cut]))
            for part in parts[cut:]:
                thing = getattr(thing, part)
        except (ImportError, AttributeError):
            continue
        return thing
    return None


def describe_data(app, what, name, value, options, lines):
    """Say of a constant what stands below its definition, in whatever module that is."""
    if what != "data":
        return
    lines.clear()
    tail = name.rpartition(".")[2]
    ours = ("tauflow.", "tauflow_papers.")
    for module in [module for path, module in sys.modules.items() if path.startswith(ours)]:
        if vars(module).get(tail) is value and not hasattr(module, "__path__"):
            lines += ModuleAnalyzer.for_module(module.__name__).find_attr_docs().get(("", tail), [])
            if lines:
                return


def setup(app):
    """Connect what is above."""
    app.connect("builder-inited", write_published, priority=400)
    app.connect("builder-inited", count_tests)
    app.connect("env-get-outdated", lambda *_: ["tested"])
    app.connect("source-read", read_page)
    app.connect("doctree-read", hide_machine)
    app.connect("doctree-read", mark_cells)
    app.connect("doctree-read", describe_pictures)
    app.connect("missing-reference", resolve)
    app.connect("build-finished", write_llms)
    app.connect("autodoc-process-docstring", describe_data)
