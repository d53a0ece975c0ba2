"""A compacted SVG is the same picture."""

import base64
import io
import re
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image

from tauflow_papers.figures.compact_svg import compact_svg

SVG = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


@pytest.fixture
def svg():
    mpl.use("Agg")
    figure, ax = plt.subplots()
    generator = np.random.default_rng(0)
    ax.plot(generator.normal(size=40), "o-", label=r"$\sigma_w^2$")
    ax.boxplot(generator.normal(size=(20, 4)), patch_artist=True)
    ax.imshow(generator.normal(size=(4, 5)), extent=(0, 1, 0, 1))
    ax.legend()
    file = io.BytesIO()
    figure.savefig(file, format="svg")
    plt.close(figure)
    return file.getvalue()


def pixels(uri):
    """Return the colours of an embedded image, 0 to 255; nothing for anything else."""
    if not uri.startswith("data:image"):
        return uri
    with Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))) as image:
        return np.asarray(image.convert("RGBA"), dtype=float)


def drawn(text):
    """Yield tag, effective style, numbers and what is referred to, of every drawn part."""
    root = ElementTree.fromstring(text)
    styles = "".join(style.text for style in root.iter(f"{SVG}style"))
    classes = dict(re.findall(r"\.(c\d+)\{([^}]*)\}", styles))
    order = {}
    for part in root.iter():
        if "id" in part.attrib:
            order[part.get("id")] = part.tag
    for part in root.iter():
        if part.tag not in {f"{SVG}{name}" for name in ("path", "use", "image")}:
            continue
        style = part.get("style") or classes.get(part.get("class"), "")
        places = " ".join(part.get(name, "") for name in ("d", "x", "y", "transform"))
        target = next((v for k, v in part.attrib.items() if k.endswith("href")), "")
        seen = order.get(target[1:], "") if target.startswith("#") else pixels(target)
        assert not target.startswith("#") or seen, f"{target} is not there"
        yield part.tag, style, [float(number) for number in NUMBER.findall(places)], seen


def test_parts_styles_and_places_are_the_same(svg):
    small = compact_svg(svg)
    assert len(small) < 0.8 * len(svg)
    before, after = list(drawn(svg)), list(drawn(small))
    assert len(before) == len(after) > 100
    assert any(isinstance(part[3], np.ndarray) for part in before)
    for drawn_part, other in zip(before, after, strict=True):
        assert drawn_part[:2] == other[:2]
        if isinstance(drawn_part[3], str):
            assert drawn_part[3] == other[3]
        else:  # a palette is not exact
            assert np.abs(other[3] - drawn_part[3]).mean() < 3
        np.testing.assert_allclose(other[2], drawn_part[2], atol=0.101)


def test_it_is_done_once_for_all(svg):
    assert compact_svg(compact_svg(svg)) == compact_svg(svg)
