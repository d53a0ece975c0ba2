"""Digests of the ONNX graphs and the C code of every cell, without versions and paths."""

import json
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .digests import digest, key, write_part

LEFT_OUT = ("parity", "rounding", "tauflow", "version", "sha256", "worst")
"""Facts that differ with the version or the machine."""
TOLERANCE = 1e-2
"""Of the compiled C code, whose rounding depends on the compiler: only the text is compared."""


def list_values(_: Path) -> Iterator[tuple[str, str]]:
    """Yield a digest of every form of every cell, or the class of the error it ends with."""
    import torch

    import tauflow
    from tauflow.cells.registry import MODELS
    from tauflow.errors import TauflowError

    warnings.simplefilter("ignore")
    classes = set()
    for name, entry in MODELS.items():
        # The graph of a step, thinner, is what C is made of: once for each class is enough.
        forms = ("sequence", "c") if entry.cell in classes else ("sequence", "step", "c")
        classes.add(entry.cell)
        torch.manual_seed(0)
        model = tauflow.build(name, 2, 4).eval()
        for form in forms:
            try:
                yield from (
                    (key(name, form, part), digest(content)) for part, content in _made(model, form)
                )
            except TauflowError as error:
                yield key(name, form), f"{type(error).__name__}: {error}"


def _made(model: Any, form: str) -> Iterator[tuple[str, Any]]:
    from tauflow.export import to_c, to_onnx

    with tempfile.TemporaryDirectory() as folder:
        if form == "c":
            written = Path(folder) / "c"
            to_c(model, written, tolerance=TOLERANCE)
        else:
            written = Path(folder)
            to_onnx(model, written / "model.onnx", mode=form)
        for path in sorted(written.iterdir()):
            if path.suffix == ".onnx":
                yield path.name, _graph(path)
            elif path.suffix == ".json":
                yield path.name, json.dumps(_plain(json.loads(path.read_text())), sort_keys=True)
            else:
                yield path.name, re.sub(r"tauflow \d[\w.+]*", "tauflow", path.read_text())


def _plain(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _plain(value) for name, value in content.items() if name not in LEFT_OUT}
    return [_plain(value) for value in content] if isinstance(content, list) else content


def _graph(path: Path) -> bytes:
    import onnx

    model = onnx.load(path)
    for field in ("producer_name", "producer_version", "doc_string"):
        model.ClearField(field)
    _bare(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _bare(message: Any) -> None:
    """Take metadata, which hold the paths of source files, out of a message and all its parts."""
    for field in ("metadata_props", "doc_string"):
        if field in message.DESCRIPTOR.fields_by_name:
            message.ClearField(field)
    for field, value in message.ListFields():
        if field.message_type is not None:
            many = hasattr(value, "__len__") and not hasattr(value, "ListFields")
            for part in value if many else [value]:
                _bare(part)


if __name__ == "__main__":
    write_part("exports", list_values)
