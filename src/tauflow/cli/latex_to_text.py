"""Formulas of docstrings as text for terminals."""

import re
import unicodedata

_SIGNS = {
    "cdot": "·",
    "ge": "≥",
    "in": "∈",
    "ldots": "...",
    "dots": "...",
    "leftarrow": "←",
    "odot": "⊙",
    "prod": "Π",
    "quad": "  ",
    "qquad": "    ",
    "sim": "~",
    "sum": "Σ",
    "top": "T",
    "varphi": "φ",
    **dict.fromkeys(("left", "right", "big"), ""),
}
_ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303"}
_SUBSTITUTIONS = (  # inner braces first; again until nothing changes
    (r"\\(?:mathrm|text|begin|end)\{(?:cases|aligned)?([^{}]*)\}", r"\1"),
    (r"\\dot\s*(?:\{([^{}]*)\}|(\\?\w)(?![a-z]))", r"d/dt \1\2"),
    (r"([_^])\{(\\?\w[\w,]*|[-+]?\w)\}", r"\1\2"),
    (r"([_^])\{([^{}]*)\}", r"\1(\2)"),
    (r"\\t?frac\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1) / (\2)"),
    (r"\\sqrt\{([^{}]*)\}", r"√(\1)"),
)


def latex_to_text(tex: str) -> str:
    """Return a formula of LaTeX as text: letters and signs as such, fractions as quotients."""
    before = ""
    while tex != before:
        before = tex
        for pattern, text in _SUBSTITUTIONS:
            tex = re.sub(pattern, text, tex)
    tex = re.sub(
        rf"\\({'|'.join(_ACCENTS)})\s*\{{?(\\[a-z]+|\w)\}}?",
        lambda match: match[2] + _ACCENTS[match[1]],
        tex,
    )
    tex = re.sub(r"\\([a-zA-Z]+)", lambda match: _convert_command(match[1]), tex)
    tex = re.sub(r"\\!|\\(?=_)", "", tex)
    return re.sub(r"(?:\\[ ,;]|\\\\|&) ?", " ", tex)


def _convert_command(name: str) -> str:
    if name in _SIGNS:
        return _SIGNS[name]
    try:
        return unicodedata.lookup(f"GREEK SMALL LETTER {name.upper()}")
    except KeyError:  # tanh, exp, max
        return name
