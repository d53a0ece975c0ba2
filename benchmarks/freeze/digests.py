"""Digests of values, and the files that keep them."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def digest(content: Any) -> str:
    """Return 32 digits of the SHA-256 of bytes, a text or a tensor with its dtype and shape."""
    if isinstance(content, str):
        content = content.encode()
    elif not isinstance(content, bytes):
        tensor = content.detach().cpu().contiguous()
        head = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
        content = head + tensor.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()[:32]


def key(*parts: object) -> str:
    """Return the key of a value: its parts with bars between them."""
    return " | ".join(str(part) for part in parts)


def options_key(options: Mapping[str, Any]) -> str:
    """Return options as a part of a key; of a function, which has no value, the name alone."""
    plain = {name: "given" if callable(v) else v for name, v in options.items()}
    return json.dumps(plain, sort_keys=True)


def import_from_tests(*folders: str) -> None:
    """Let modules in folders of the tests be imported."""
    sys.path[:0] = [str(TESTS / folder) for folder in folders]


def write_part(part: str, list_values: Callable[[Path], Iterable[tuple[str, str]]]) -> None:
    """Write a part's keys and digests to the folder that the command line names."""
    import torch

    torch.set_num_threads(1)
    started = time.perf_counter()
    folder = Path(sys.argv[1])
    values: dict[str, str] = {}
    for name, value in list_values(folder):
        if name in values:
            sys.exit(f"freeze: two values of {name}")
        values[name] = value
    text = json.dumps(values, indent=0, sort_keys=True)
    (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{part}: {len(values)} values in {time.perf_counter() - started:.0f} s", flush=True)
