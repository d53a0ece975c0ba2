"""Short computations that decide a claim no table and no figure is about; results are stored."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from tauflow._internal.atomic_write import write_atomically
from tauflow._internal.registry import Registry
from tauflow_papers.claims.stored import STUDIES_FOLDER
from tauflow_papers.experiments.run.provenance import check_can_store, describe_origin

from . import cheetah, driving, generalisation, gradients, memories, networks, solvers, speed

Numbers = Mapping[str, Any]
"""Numbers, texts and further tables of them, by name."""


@dataclass(frozen=True)
class Study:
    """A computation whose numbers claims refer to.

    Args:
        title: what it measures, in a few words.
        compute: does the work, and returns what JSON can hold.
        minutes: of one core, about.
        networks: trained networks of a kind, each with another seed, that a number is the mean
            of; ``None`` where nothing is trained, or the paper shows a single network.
    """

    title: str
    compute: Callable[[], Numbers]
    minutes: float
    networks: int | None = None


STUDIES: Registry[Study] = Registry(
    "study",
    {
        "closed-forms": Study(
            "Equation 9 beside CfC", cheetah.compare_closed_forms, 3.0, networks=1
        ),
        "complexity": Study("time over length and solver steps", speed.measure_growth, 1.0),
        "disk": Study("a gnODE trained on a disk, on other shapes", memories.test_disk, 12.0),
        "driving": Study("lane keeping in a closed loop", driving.drive, 20.0),
        "epochs": Study("an epoch of rows of tables", speed.time_epochs, 1.0),
        "gradients": Study(
            "how far errors flow back, by BPTT and by the adjoint", gradients.measure, 0.5
        ),
        "half-cheetah": Study("Half-Cheetah, many steps ahead", cheetah.roll_out, 8.0, networks=1),
        "leak": Study("stability of neural ODEs without leak", networks.measure_leak, 0.2),
        "ltc-solvers": Study("a trained LTC with other solvers", solvers.compare, 3.0, networks=1),
        "parameters": Study("parameters of Table S2", networks.count_parameters, 0.1),
        "perturbations": Study(
            "noisy and adversarial inputs", generalisation.perturb_inputs, 4.0, networks=1
        ),
        "sizes": Study("networks by size and sparsity", generalisation.vary_size, 12.0, networks=1),
        "sizes-ozone": Study(
            "the same on ozone",
            partial(generalisation.vary_size, "ozone", epochs=20),
            8.0,
            networks=1,
        ),
        "speed": Study("CfC beside networks with a solver", speed.compare, 2.0),
        "three-neurons": Study("a flip-flop of three neurons", memories.train_three, 4.0),
        "time-lags": Study(
            "gaps longer than in training", generalisation.test_lags, 2.0, networks=1
        ),
        "tsit5": Study("a flip-flop trained with Tsit5 steps", memories.compare_tsit5, 14.0),
    },
)
"""Every study by name."""


def run_study(name: str, results_dir: Path) -> Path:
    """Run a study and store its numbers, with what they were computed on.

    Args:
        name: one of :data:`STUDIES`.
        results_dir: the folder of results.

    Returns:
        The file written.

    Raises:
        UnknownNameError: there is no such study.
        ArgumentError: the folder is part of the repository, and the sources cannot be traced.
    """
    study = STUDIES[name]
    path = results_dir / STUDIES_FOLDER / f"{name}.json"
    check_can_store(path.parent)
    started, used = time.perf_counter(), time.process_time()
    numbers = study.compute()
    record = {
        "study": name,
        "title": study.title,
        "numbers": numbers,
        "networks": study.networks,
        "seconds": round(time.perf_counter() - started, 1),
        "processor seconds": round(time.process_time() - used, 1),
        "date": datetime.now(timezone.utc).date().isoformat(),
        **describe_origin(seed=0),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    return path
