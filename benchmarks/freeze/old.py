"""Write small files of every kind that a later version must read, and what they gave.

They are written once, by the version whose files are to be read, and then left as they are.
"""

import os
import shutil
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from .digests import import_from_tests
from .numbers import perturbed

LARGE = ("latent-ode-rnn-class", "latent-ode-ode-tagger")
"""Models whose classifiers have 300 units, too many for small files."""
_COLUMNS = "--csv visits.csv --id patient --time hours --target died"
RUN = f"{_COLUMNS} --runs trained --model gru --hidden-size 3"
"""Options of the run, without its epochs."""
STUDY = f"{_COLUMNS} --runs studies --model elman --epochs 1"
"""Options of the study, without its trials."""


def main() -> None:
    """Write all files to the folder that the command line names."""
    import torch
    from safetensors.torch import save_file

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.chdir(sys.argv[1])
    import_from_tests("conformance", "unit/training", "unit/experiments")
    expected: dict[str, torch.Tensor] = {}
    _write_models(expected)
    _write_estimators(expected)
    _write_checkpoint(expected)
    save_file({k: v.detach().contiguous() for k, v in expected.items()}, "expected.safetensors")
    _write_run()
    _write_table()
    for path in Path().rglob(".lock"):
        path.unlink()


def models() -> dict[str, Any]:
    """Return a model of each kind of structure, in double precision, and the size of its input."""
    import whole_models

    import tauflow
    from tauflow.models import SequenceModel

    built = tauflow.build
    built_models = {
        "one-layer": built("ltc", 2, 4),
        "options": built("ltc", 2, 4, solver="rk4", constraint="clip", substeps=2),
        "stacked": built("cfc", 2, 4, num_layers=2, dropout=0.1, backbone_units=5),
        "bidirectional": built("gru-d", 2, 3, bidirectional=True),
        "projected": built("gnode", 2, 4, proj_size=3, layers=2, gate_layers=2),
        "ode-lstm": built("ode-lstm", 2, 4, solver="heun"),
        "mixed-memory": built("cfc-mmrnn", 2, 4, backbone_units=5),
        "ncp": built("ltc", 2, tauflow.AutoNCP(8, 2)),
        "random-wiring": built("wired-cfc", 2, tauflow.RandomSparse(6, 2)),
        "head": SequenceModel(built("lem", 2, 4), 3),
        "cell": built("lrc", 2, 4).cell,
        "last-step": SequenceModel(built("lmu", 2, 4, order=3, return_sequences=False), 1),
        **{n: whole_models.model(n) for n in whole_models.NAMES if n not in LARGE},
    }
    return {name: perturbed(model).double().eval() for name, model in built_models.items()}


def _write_models(expected: dict[str, Any]) -> None:
    import torch
    import whole_models

    import tauflow

    Path("models").mkdir()
    torch.manual_seed(0)
    for name, model in models().items():
        tauflow.save(model, Path("models", f"{name}.safetensors"))
        x, dt = whole_models.sequences(name if name in whole_models.NAMES else "transformer")
        if name == "cell":
            expected[f"{name}.y"] = model.step(x[:, 0], model.initial_state(x[:, 0]), dt[:, :1])
        else:
            expected[f"{name}.y"] = model(x, dt=dt)[0]
        expected[f"{name}.x"], expected[f"{name}.dt"] = x.clone(), dt.clone()


def _write_estimators(expected: dict[str, Any]) -> None:
    import numpy as np
    import torch

    from tauflow.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

    Path("estimators").mkdir()
    random = np.random.default_rng(0)
    X, t = random.normal(size=(12, 5, 2)), random.exponential(600.0, (12, 5)).cumsum(1)
    number = X[..., 0].mean(1)
    small = {"hidden_size": 3, "epochs": 2, "lr": 0.02, "random_state": 0}
    expected["estimators.X"], expected["estimators.t"] = torch.tensor(X), torch.tensor(t)
    for name, estimator, y, method in (
        (
            "classifier",
            SequenceClassifier(class_weight={"up": 2.0, "down": 1.0}, **small),
            np.where(number > 0, "up", "down"),
            "predict_proba",
        ),
        (
            "regressor",
            SequenceRegressor(model="gru-d", dtype="float64", **small),
            number,
            "predict",
        ),
        ("forecaster", SequenceForecaster(horizon=2, targets=[1], **small), None, "predict"),
    ):
        estimator.fit(X, y, t=t)
        estimator.save(Path("estimators", f"{name}.safetensors"))
        answers = getattr(estimator, method)(X, t=t)
        expected[f"estimators.{name}"] = torch.tensor(np.asarray(answers))


def training() -> dict[str, Any]:
    """Return the arguments of a training whose checkpoint is stored after one epoch of three."""
    import torch
    from tiny_training_task import tiny_splits

    import tauflow
    from tauflow.models import SequenceModel

    torch.manual_seed(0)
    return {
        "model": SequenceModel(tauflow.build("cfc", 2, 3, backbone_units=4), 1),
        **tiny_splits(),
        "recipe": tauflow.Recipe(lr=0.05, epochs=3, batch_size=8),
        "seed": 0,
        "progress": False,
    }


def _write_checkpoint(expected: dict[str, Any]) -> None:
    import tauflow

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        tauflow.train(**training(), run_dir=Path("checkpoint"), callbacks=[stop])
    options = training()
    tauflow.train(**options)
    for name, tensor in options["model"].state_dict().items():
        expected[f"checkpoint.{name}"] = tensor


def _write_run() -> None:
    """A run of a table of visits, its predictions, and a study on the same table."""
    import numpy as np

    random = np.random.default_rng(0)
    rows = ["patient,hours,a,b,died"]
    for patient in range(16):
        hours = random.exponential(1.0, 4).cumsum()
        for hour in hours:
            a = "" if random.random() < 0.2 else f"{random.normal():.3f}"
            b = patient % 2 + 0.1 * random.normal()
            rows.append(f"{patient},{hour:.3f},{a},{b:.3f},{'yes' if patient % 2 else 'no'}")
    Path("visits.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    command("run", *RUN.split(), "--epochs", "2")
    (run,) = Path("trained").rglob("predictor.safetensors")
    command("predict", str(run.parent), "--csv", "visits.csv", "--proba", "--out", "predicted.csv")
    command("tune", *STUDY.split(), "--trials", "2")
    for report in [*Path("trained").rglob("report.html"), *Path("studies").rglob("*.html")]:
        report.unlink()
    (best,) = Path("studies").rglob("best.toml")
    text = best.read_text(encoding="utf-8")
    best.write_text(text.replace(f"{Path.cwd()}/", ""), encoding="utf-8")


def command(*words: str) -> str:
    """Run a command of tauflow, and return what it printed."""
    from typer.testing import CliRunner

    from tauflow.cli.main import app

    result = CliRunner().invoke(app, list(words))
    if result.exit_code != 0:
        sys.exit(f"tauflow {' '.join(words)}: {result.output}")
    return result.output


def _write_table() -> None:
    from tiny_experiment import TINY

    Path("table").mkdir()
    Path("table", "tiny.toml").write_text(TINY, encoding="utf-8")
    command("reproduce", "table/tiny.toml", "--results", "table", "--runs", "reproduced")
    shutil.rmtree("reproduced")
    for path in Path("table").iterdir():
        if path.suffix not in (".toml", ".jsonl"):
            path.unlink()


if __name__ == "__main__":
    main()
