"""Kill one command over and over, continue it, and compare with one left in peace; a program.

Arguments: an empty folder, the kind of command, how many kills, a seed.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from forked import alive, end, fork, warm_up
from safetensors.torch import load_file

from tauflow.data import load_task, write_task
from tauflow.runs.tune import BEST_CONFIG_FILE, JOURNAL_FILE
from tauflow.training import read_checkpoint

TABLE = """
name = "tiny"
title = "A tiny pendulum"
source = "Doe 2020, Table 0"
loss = "mse"
metric = "mse"
seeds = 2
recipe = {{ lr = 0.01, epochs = {epochs}, batch_size = 6 }}

[[part]]
name = ""
dataset = "pendulum"
options = {{ sizes = [12, 6, 6], steps = 5 }}

[[row]]
name = "gru"
title = "GRU"
model = {{ cell = "gru", hidden_size = 3 }}
published = {{ mean = 0.5 }}

[[row]]
name = "elman"
title = "Elman"
model = {{ cell = "elman", hidden_size = 3 }}
published = {{ mean = 0.7 }}
"""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PER_TRIAL = 4  # kills, at most
PATIENCE = 60.0  # seconds for the processes of a killed command to end


def words(kind: str, root: Path, folder: Path) -> list[str]:
    """Return the command, or what continues it in a folder."""
    table = str(root / "tiny.toml")
    if kind == "run":
        begun = any(folder.glob("runs/*/*"))
        sizes = ["--model", "elman", "--hidden-size", "3", "--epochs", "20"]
        return ["run", str(root / "task"), *sizes, *(["--resume"] if begun else [])]
    if kind == "tune":
        sizes = [
            "--model",
            "elman",
            "--epochs",
            "3",
            "--trials",
            "6",
            "--set",
            "recipe.batch_size=6",
        ]
        return ["tune", str(root / "task"), *sizes]
    if kind == "search":
        return ["search", table, "gru", "--vary", "recipe.lr=[0.01,0.02]", "--confirm", "2"]
    return ["reproduce", table, *(["--jobs", "2"] if kind == "reproduce --jobs 2" else [])]


def prepare(kind: str, root: Path) -> None:
    """Write what the commands read, and import what they import."""
    torch.set_num_threads(1)
    (root / "tiny.toml").write_text(TABLE.format(epochs=100 if "jobs" in kind else 12))
    data = load_task("pendulum", sizes=(24, 6, 6), steps=5)
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    write_task(root / "task", data.card, **parts)
    command = words(kind.partition(" --")[0], root, root / "warm")
    warm_up([[*command, "--epochs", "1"]], root / "warm")


def start(kind: str, root: Path, folder: Path) -> int:
    """Start the command, or what continues it, and return its number."""
    with (folder / "output.txt").open("ab") as output:
        return fork(words(kind, root, folder), folder, output.fileno())


def trial(kind: str, root: Path, folder: Path, rng: random.Random, seconds: float) -> int:
    """Run a command, killing it a few times, until it has finished; return the number of kills."""
    folder.mkdir()
    sessions, kills = [], 0
    while True:
        child = start(kind, root, folder)
        sessions.append(child)
        sent = None
        if kills < PER_TRIAL:
            time.sleep(rng.uniform(0.0, 0.6 * seconds))
            sent = rng.choice(SIGNALS)
            # Ctrl-C reaches all processes of a terminal, a signal by number only one.
            (os.killpg if sent == signal.SIGINT and rng.random() < 0.5 else os.kill)(child, sent)
        code = end(child)
        if code == 0:
            break
        # Python code that handles SIGINT or SIGTERM ends with 128 and the number of the signal.
        handled = (sent + 128,) if sent in (signal.SIGINT, signal.SIGTERM) else ()
        expected = (sent and -sent, *handled)
        assert code in expected, f"exit code {code} after {sent!r}:\n{describe_folder(folder)}"
        kills += 1
    deadline = time.monotonic() + PATIENCE
    while left := alive(sessions):
        assert time.monotonic() < deadline, f"these outlived their command: {left}"
        time.sleep(0.1)
    return kills


def describe_folder(folder: Path) -> str:
    """Return what the commands in a folder printed."""
    return (folder / "output.txt").read_text()


def content(folder: Path) -> dict[str, Any]:
    """Return all that runs left behind, but for times and places."""
    contents: dict[str, Any] = {}
    for run in folder.glob("runs/*/*"):
        if not run.is_dir():
            continue
        name = str(run.relative_to(folder))
        if (run / JOURNAL_FILE).exists():
            contents[name] = study(run)
            continue
        last = read_checkpoint(run / "last.safetensors")
        tensors = {f"model.{key}": value for key, value in last.model.items()}
        for index, state in last.optimizer.items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items()}
        tensors |= {f"rng.{key}": value for key, value in last.rng.items()}
        best = load_file(run / "best.safetensors")
        tensors |= {f"best.{key}": value for key, value in best.items()}
        log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        contents[name] = {
            "log": timeless(log),
            "history": timeless(last.history),
            "tensors": {key: as_list(value) for key, value in sorted(tensors.items())},
            "files": sorted(file.name for file in run.iterdir()),
        }
    for file in folder.glob("results/*.jsonl"):
        from tauflow_papers.experiments.run.result_file import read_records

        records, warnings = read_records(file)
        assert not warnings, warnings
        contents[file.name] = sorted(
            json.dumps([r.row, r.seed, r.config_hash, r.status, r.test, timeless(r.history)])
            for r in records
        )
    return contents


def study(folder: Path) -> list[Any]:
    """Return how many trials came to an end, and whether the file has the best settings.

    What is drawn after a kill differs.
    """
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL_FILE)))
    loaded = optuna.load_study(study_name="study", storage=storage)
    ended = [
        finished for finished in loaded.trials if finished.state.name in ("COMPLETE", "PRUNED")
    ]
    assert all(each.intermediate_values for each in ended)
    best = f"lr = {loaded.best_params['recipe.lr']!r}"
    return [len(ended), best in (folder / BEST_CONFIG_FILE).read_text()]


def as_list(value: Any) -> Any:
    """Return the values of a tensor exactly."""
    return value.double().tolist() if isinstance(value, torch.Tensor) else value


def timeless(rows: Any) -> list[dict[str, Any]]:
    """Return the rows of a log without what depends on the machine."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def main() -> None:
    """Try until there were enough kills, and print how many there were."""
    root, kind, wanted, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    prepare(kind, root)
    peace = root / "peace"
    peace.mkdir()
    began = time.monotonic()
    code = end(start(kind, root, peace))
    assert code == 0, describe_folder(peace)
    seconds = time.monotonic() - began
    expected = content(peace)
    assert expected, "nothing was run"
    kills, trials = 0, 0
    while kills < wanted:
        folder = root / f"trial-{trials}"
        kills += trial(kind, root, folder, rng, seconds)
        contents_now = content(folder)
        for name in expected.keys() | contents_now.keys():
            assert contents_now.get(name) == expected.get(name), (
                f"seed {seed}, {folder}: {name} differs"
            )
        trials += 1
        assert trials < 10 * wanted, "commands end before they can be killed"
    sys.stdout.write(f"{kills} kills in {trials} trials\n")


if __name__ == "__main__":
    main()
