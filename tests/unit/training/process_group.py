"""Run trainings in one process of a group: ``process_group.py RANK WORLD FOLDER CASE...``."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import tauflow
from tauflow.batch import SequenceBatch
from tauflow.cli.main import main

RANK, WORLD, FOLDER, CASES = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]


def data(count, classes=False):
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 9, 3, generator=generator)
    mask = torch.arange(9) < torch.randint(1, 10, (count, 1), generator=generator)
    dt = torch.rand(count, 9, generator=generator) + 0.2
    if classes:
        return SequenceBatch(x, (x[:, :, 0].sum(1) > 0).long(), dt=dt)
    return SequenceBatch(x, torch.tanh(x.cumsum(1)[..., :1]), dt=dt, mask=mask)


def trained(name, run_dir=None, *, resume=False, callbacks=(), classes=False, **recipe):
    torch.manual_seed(RANK)  # the first process's weights are everybody's
    if RANK == 0 or WORLD == 1:
        torch.manual_seed(0)
    body = tauflow.build(name, 3, 5, return_sequences=not classes)
    model = tauflow.SequenceModel(body, 2 if classes else 1)
    settings = {"lr": 0.01, "epochs": 4, "batch_size": 8, "clip": "norm", "clip_norm": 1.0}
    result = tauflow.train(
        model,
        train=data(53, classes),  # the last batch has 5 sequences
        valid=data(17, classes),
        test=data(9, classes),
        loss="cross_entropy" if classes else "mse",
        metric="auroc" if classes else "mse",
        recipe=tauflow.Recipe(**{**settings, **recipe}),
        seed=3,
        run_dir=run_dir,
        resume=resume,
        progress=False,
        callbacks=callbacks,
    )
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    weights = {k: v.tolist() for k, v in model.state_dict().items()}
    return {"history": history, "weights": weights}


def curves():
    models = ("cfc", "ode-lstm")
    return {name: trained(name, epochs=8) for name in models}


def areas():
    return trained("cfc", classes=True, batch_size=52)  # a last batch of one


def resumed():
    uncut = trained("gru", FOLDER / "whole")
    trained("gru", FOLDER / "cut", epochs=2)
    return {
        "whole": uncut,
        "resumed": trained("gru", FOLDER / "cut", resume=True),
        "writes": sorted(p.name for p in (FOLDER / "cut").iterdir()),
    }


def accumulated():
    settings = {"optimizer": "sgd", "optimizer_options": {"momentum": 0.5}, "schedule": "cosine"}
    return trained("gru", batch_size=4, accumulate=2, ema=0.9, patience=9, **settings)


def weighted():
    return trained("cfc", classes=True, class_weights=(1.0, 2.0))


def stopping():
    trained("gru", on_divergence="stop")


def command():
    """What ``tauflow run`` does in each of the processes that torchrun starts."""
    sys.argv = ["tauflow", "run", "pendulum", "--model", "gru", "--hidden-size", "3"]
    sys.argv += ["--epochs", "1", "--runs", str(FOLDER / "runs")]
    try:
        main()
    except SystemExit as end:
        return {"exit": end.code}
    return {"exit": 0}


def other_number_of_ranks():
    trained("gru", FOLDER / "whole", resume=True, epochs=5)


if WORLD > 1:
    store = f"file://{FOLDER}/store"
    dist.init_process_group("gloo", init_method=store, rank=RANK, world_size=WORLD)
for case in CASES:
    try:
        report = globals()[case]()
    except (tauflow.errors.TauflowError, TypeError) as error:
        report = {"error": type(error).__name__, "message": str(error)}
    (FOLDER / f"{case}-{WORLD}-{RANK}.json").write_text(json.dumps(report), encoding="utf-8")
