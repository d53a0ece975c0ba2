"""Write the pictures and tables of docs/speed.md from the newest results, one for each question."""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "benchmarks", ROOT / "docs" / "speed.md"
PICTURES = ROOT / "docs" / "_static"
MARKER = "<!-- {}: written by `python -m benchmarks plot-speed` -->\n"
END = "<!-- end -->\n"
COLORS = {
    **dict.fromkeys(
        ("tauflow", "tauflow stream", "stacked", "in chunks", "CUDA graph", "time"), "C0"
    ),
    **dict.fromkeys(("plain PyTorch", "cell.step", "one after the other", "step by step"), "C7"),
    "ncps": "C1",
    "torch.nn.LSTM": "C2",
    "exported as C": "C3",
    "torch.nn.GRU": "C4",
    "JAX": "C6",
}
Rows = dict[str, dict[str, float]]
"""Case, and time by implementation."""


@dataclass(frozen=True)
class Question:
    """What one picture shows.

    Args:
        alt: what is seen, for those who do not see it.
        panels: rows by title.
        unit: of the times.
        caption: what was timed, in Markdown.
        machine: where, and when.
        command: repeats the measurement.
    """

    alt: str
    panels: dict[str, Rows]
    unit: str
    caption: str
    machine: str
    command: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Write all pictures, and what stands on the page below each question."""
    text = PAGE.read_text("utf-8")
    for name, make in QUESTIONS.items():
        question = make()
        draw(question, arguments.pictures / f"speed-{name}.svg")
        marker = MARKER.format(name)
        before, _, rest = text.partition(marker)
        assert rest, f"{PAGE} lacks {marker!r}"
        text = f"{before}{marker}{describe(name, question)}{END}{rest.partition(END)[2]}"
    PAGE.write_text(text, encoding="utf-8")


def draw(question: Question, path: Path) -> None:
    """Draw one line for each case, with a dot for each implementation."""
    import matplotlib
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tauflow", "font.size": 9})
    counts = [len(rows) for rows in question.panels.values()]
    height = 0.9 + 0.2 * sum(counts) + 0.35 * len(counts)
    figure, axes = plt.subplots(
        len(counts),
        1,
        figsize=(5.6, height),
        layout="constrained",
        sharex=True,
        squeeze=False,
        height_ratios=[count + 1 for count in counts],
    )
    names = list(dict.fromkeys(n for p in question.panels.values() for r in p.values() for n in r))
    for ax, (title, rows) in zip(axes[:, 0], question.panels.items(), strict=True):
        for place, times in enumerate(rows.values()):
            ax.plot([min(times.values()), max(times.values())], [place, place], color="0.8")
            for name, time in times.items():
                ax.plot(time, place, "o", color=COLORS[name], markersize=6)
        ax.set_yticks(range(len(rows)), list(rows))
        ax.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
        ax.set_title(title, loc="left", fontsize=9, weight="bold")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
        ax.grid(axis="x", color="0.9")
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(left=False)
    axes[-1, 0].set_xlabel(f"{question.unit} (less is better)")
    handles = [plt.Line2D([], [], marker="o", ls="", color=COLORS[n], label=n) for n in names]
    if len(names) > 1:
        figure.legend(
            handles=handles,
            loc="outside upper left",
            ncols=4,
            frameon=False,
            columnspacing=1,
            handletextpad=0.1,
        )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def describe(name: str, question: Question) -> str:
    """Return picture, caption and table in Markdown."""
    lines = [f"![{question.alt}](_static/speed-{name}.svg)", ""]
    lines += [f"*{question.caption} {question.machine} `{question.command}`*", ""]
    lines += ["<details><summary>Table</summary>", ""]
    for title, rows in question.panels.items():
        names = list(dict.fromkeys(key for times in rows.values() for key in times))
        lines += [f"| {title} | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
        for case, times in rows.items():
            cells = [
                format_time(times[key], question.unit) if key in times else "" for key in names
            ]
            lines.append(f"| {case} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join([*lines, "</details>", ""])


def format_time(time: float, unit: str) -> str:
    """Return a time to three digits."""
    number = f"{time:,.0f}" if time >= 100 else f"{time:.3g}"
    return f"{number} {unit}" if unit in ("ms", "µs") else number


def ask_cpu() -> Question:
    """How fast is a training step on a CPU?"""
    newest = _read_newest("cpu")
    panels: dict[str, Rows] = {}
    for row in newest["rows"]:
        if row["kind"] == "training step":
            times = {NAMES[key]: ms for key, ms in row["ms"].items() if key in NAMES and ms}
            panels.setdefault(f"{row['model']}: B, T, I, N", {})[row["size"]] = times
    return Question(
        alt="Time of a training step of LTC and CfC at four sizes: tauflow is faster than plain "
        "PyTorch and ncps; nn.LSTM is faster than an LTC and about as fast as a CfC",
        panels=panels,
        unit="ms",
        caption="One training step: forward, mean square, backward, float32.",
        machine=_machine({**newest["machine"], **newest["versions"]}, "cpu"),
        command="python -m benchmarks cpu",
    )


def ask_peers() -> Question:
    """How does it compare with JAX?"""
    newest = _read_newest("peers")
    panels: dict[str, Rows] = {}
    for row in newest["rows"]:
        measured = row["milliseconds"].items()
        times = {PEER_NAMES[key]: ms for key, ms in measured if key in PEER_NAMES}
        panels.setdefault(f"{row['model']}, {row['kind']}: B, T, I, N", {})[row["size"]] = times
    return Question(
        alt="Time of LTC and CfC, forward and in training: tauflow takes less time than JAX and "
        "ncps at every size, in training an LTC a twenty-fourth of JAX's or less",
        panels=panels,
        unit="ms",
        caption="float32, two threads; JAX is `jit` of `lax.scan` in a separate process.",
        machine=_machine(newest, "peers"),
        command="python -m benchmarks peers",
    )


def ask_models() -> Question:
    """Which models are fast?"""
    path = _newest("zoo", "md")
    rows = {name: {"time": float(x)} for name, _, x, _ in _cells(path)}
    return Question(
        alt="Training times of all models relative to nn.LSTM, from an Elman network to an LTC",
        panels={"relative to nn.LSTM": rows},
        unit="times the time of nn.LSTM",
        caption="One training step relative to `torch.nn.LSTM` of the same width: B = 128, T = 64, "
        "I = 18, N = 64, float32.",
        machine=_machine(_read_machine(path), "zoo"),
        command="python -m benchmarks zoo",
    )


def ask_sample() -> Question:
    """How fast is a single sample?"""
    path = _newest("streaming", "md")
    rows: Rows = {}
    for name, stream, step, theirs, _, _, in_c, _ in _cells(path):
        times = {"tauflow stream": stream, "cell.step": step, "ncps": theirs, "exported as C": in_c}
        rows[name] = {key: float(time) for key, time in times.items() if time}
    return Question(
        alt="Time of one sample of eight models: a stream takes 3 to 11 microseconds, cell.step "
        "40 to 180, exported C code 1 to 13",
        panels={"model and neurons": rows},
        unit="µs",
        caption="One sample of one sequence, 17 inputs, float32, one thread, called from Python, "
        "except for C (`-O3`).",
        machine=_machine(_read_machine(path), "streaming"),
        command="python -m benchmarks streaming",
    )


def ask_long() -> Question:
    """How fast are long sequences?"""
    path = _newest("long-cpu", "md")
    rows: Rows = {}
    for network, batch, steps, *times in _cells(path):
        loop, chunks = times[-7:-5] if len(times) == 11 else times[-6:-4]  # one way more before
        model = network.removesuffix(", fresh")
        if batch == "1" and model != network and (case := f"{model}, {int(steps):,}") not in rows:
            rows[case] = {"step by step": float(loop), "in chunks": float(chunks)}
    return Question(
        alt="Time of a training step on one long sequence: chunks are 1.5 to 37 times as fast as "
        "single steps, but not for an ODE-LSTM",
        panels={"model, steps": dict(sorted(rows.items(), key=_model_and_steps))},
        unit="ms",
        caption="One training step on one sequence, untrained networks, float32, two threads.",
        machine=_machine(_read_machine(path), "long-cpu"),
        command="python -m benchmarks long",
    )


def ask_gpu() -> Question:
    """How fast is a training step on a GPU?"""
    newest = _read_newest("gpu")
    panels: dict[str, Rows] = {"LTC": {}, "CfC": {}}
    for part in ("training steps beside cuDNN", "training steps beside ncps and the reference"):
        for row in newest[part]["rows"]:
            model, _, width = row["case"].partition(", ")
            if not row["what"]:
                times = {NAMES[key]: ms for key, ms in row["values"].items() if key in NAMES}
                panels[model].setdefault(width, {}).update(times)
    fields = newest["machine"]["rows"][0]
    return Question(
        alt="Time of a training step of LTC and CfC on a GPU by number of neurons: tauflow takes 3 "
        "to 73 ms, plain PyTorch and ncps 300 to 1700 ms, cuDNN's LSTM 1 to 13 ms",
        panels=panels,
        unit="ms",
        caption="One training step: B = 128, T = 256, I = 17, float32. A CfC has as many backbone "
        "units as neurons, an LTC six solver steps. Plain PyTorch and ncps would need 77 GB for an "
        "LTC of 128 neurons, and 309 GB for 256.",
        machine=_machine({**fields, "cpu": fields["GPU"], "cores": 1}, "gpu"),
        command="python -m benchmarks gpu",
    )


def ask_graphs() -> Question:
    """How fast are cells without a GPU kernel?"""
    newest = _read_newest("graphs")
    rows = {
        model: {
            "CUDA graph": times["training step, graph"],
            "step by step": times["training step, reference"],
        }
        for model, times in newest["ms"].items()
        if "training step, graph" in times and "training step, reference" in times
    }
    return Question(
        alt="Time of a training step of fifteen models: CUDA graphs are three to six times as fast "
        "as launching the operations one by one",
        panels={"model": dict(sorted(rows.items(), key=lambda row: row[1]["CUDA graph"]))},
        unit="ms",
        caption="One training step: B = 128, T = 128, I = 17, N = 64, float32.",
        machine=_machine({**newest, "cpu": newest["gpu"], "cores": 1}, "graphs"),
        command="python -m benchmarks graphs",
    )


QUESTIONS: dict[str, Callable[[], Question]] = {
    "cpu": ask_cpu,
    "peers": ask_peers,
    "models": ask_models,
    "sample": ask_sample,
    "long": ask_long,
    "gpu": ask_gpu,
    "graphs": ask_graphs,
}
NAMES = {
    "tauflow": "tauflow",
    "reference": "plain PyTorch",
    "ncps": "ncps",
    "torch LSTM": "torch.nn.LSTM",
}
PEER_NAMES = {**NAMES, "torch GRU": "torch.nn.GRU", "JAX": "JAX"}


def _model_and_steps(row: tuple[str, dict[str, float]]) -> tuple[str, int]:
    model, _, steps = row[0].partition(", ")
    return model, int(steps.replace(",", ""))


def _newest(name: str, kind: str) -> Path:
    return sorted(RESULTS.glob(f"{name}-[0-9]*.{kind}"))[-1]


def _read_newest(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_newest(name, "json").read_text("utf-8"))
    return content


def _cells(path: Path) -> list[list[str]]:
    """Return the cells of the first table of a Markdown file, without its head."""
    table = re.search(r"^\| ---.*\n((?:\|.*\n)*)", path.read_text("utf-8"), re.M)
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in table[1].split("\n")[:-1]
    ]


def _read_machine(path: Path) -> dict[str, Any]:
    """Return what the last line of a Markdown file says of the machine."""
    line = path.read_text("utf-8").rstrip().rpartition("\n")[2]
    return dict(part.split(" ", 1) for part in line.split(", ") if " " in part)


def _machine(fields: Mapping[str, Any], name: str) -> str:
    cores = "" if int(fields["cores"]) == 1 else f"{fields['cores']} cores of an "
    paths = [*RESULTS.glob(f"{name}-[0-9]*.*")]
    day = max(path.stem[-10:] for path in paths)
    torch = str(fields["torch"]).partition("+")[0]
    processor = str(fields["cpu"]).replace("(R)", "").removesuffix(" Processor")
    return f"{cores}{processor}, PyTorch {torch}, {day}."
