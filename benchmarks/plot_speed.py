"""Plot the newest results of ``cpu`` and ``gpu`` beside other implementations, for the README."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "results" / "benchmarks", ROOT / "docs" / "_static" / "speed.svg"
CPU_SIZES = {"LTC": "128, 64, 17, 64", "CfC": "128, 64, 18, 64"}
"""B, T, I, N of the steps that are shown."""
LABELS = {
    "tauflow": ("tauflow", "C0"),
    "reference": ("plain PyTorch", "C7"),
    "ncps": ("ncps", "C1"),
    "torch LSTM": ("torch.nn.LSTM", "C2"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the picture."""
    import matplotlib
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tauflow", "font.size": 9})
    panels = {"2 CPU cores, T = 64": read_cpu_times(), "NVIDIA H100, T = 256": read_gpu_times()}
    figure, axes = plt.subplots(1, len(panels), figsize=(8.2, 2.5), layout="constrained")
    for ax, (title, models) in zip(axes, panels.items(), strict=True):
        for index, (model, times) in enumerate(models.items()):
            rows = [index * (len(times) + 0.6) + row for row in range(len(times))]
            for row, (name, ms) in zip(rows, times.items(), strict=True):
                label, color = LABELS[name]
                ax.barh(row, ms, color=color)
                ax.text(0.9, row, label, ha="right", va="center")
                ax.text(ms, row, f" {format_time(ms)}", va="center")
            height = sum(rows) / len(rows)
            ax.text(
                1, height, model, va="center", transform=ax.get_yaxis_transform(), weight="bold"
            )
        ax.set(xscale="log", xlim=(1, 1e4), title=title, xlabel="ms", yticks=[])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle("One training step of 128 sequences, 64 units, float32 (shorter is better)")
    figure.savefig(arguments.out, metadata={"Date": None})
    print(arguments.out)


def read_cpu_times() -> dict[str, dict[str, float]]:
    """Return milliseconds of a training step by model and implementation."""
    rows = _read_newest("cpu")["rows"]
    return {
        model: _pick(row["ms"])
        for model, size in CPU_SIZES.items()
        for row in rows
        if (row["model"], row["size"], row["kind"]) == (model, size, "training step")
    }


def read_gpu_times() -> dict[str, dict[str, float]]:
    """Return the same of a GPU."""
    found = _read_newest("gpu")
    times: dict[str, dict[str, float]] = {model: {} for model in CPU_SIZES}
    for part in ("training steps beside cuDNN", "training steps beside ncps and the reference"):
        for row in found[part]["rows"]:
            model, _, width = row["case"].partition(", N ")
            if width == "64" and not row["what"]:
                times[model] |= row["values"]
    return {model: _pick(values) for model, values in times.items()}


def format_time(ms: float) -> str:
    """Return a time to two digits."""
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _read_newest(name: str) -> dict:
    return json.loads(sorted(RESULTS.glob(f"{name}-*.json"))[-1].read_text("utf-8"))


def _pick(times: Mapping[str, float]) -> dict[str, float]:
    return {name: times[name] for name in LABELS}
