"""Fine-tuning of the pretrained forecaster against training from scratch on the same few ids.

Of each table among the test families, its first variable is forecast for ids that were left out.
Both get the same ids: `from_pretrained().fit` as it is, and `SequenceForecaster` by its defaults.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import pandas as pd
import torch

from tauflow.errors import TimeError
from tauflow.pretraining.weights import load_weights

from .pretrained import limit_members, measure, run_method
from .pretrained_families import FAMILIES

TABLES = [
    *("cdnow", "framingham", "migraine", "nafld", "physionet", "quinidine", "toenail", "wages"),
    *("characters", "cheetah", "storms", "walker"),
]
METHODS = ("zero-shot", "fine-tuned", "from scratch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--ids", nargs="+", type=int, default=[5, 20, 100])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--out", type=Path, default=None, help="JSON file of the numbers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print one row for each table, number of ids and method, and who won."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    network = load_weights()
    rows = []
    for family in arguments.tables:
        task = next(FAMILIES[family](0.0))
        for ids in arguments.ids:
            if len(task.known) < ids:
                continue
            part = limit_members(task, ids)
            for method in arguments.methods:
                start = time.process_time()
                try:
                    answers = run_method(method, network, part)
                except TimeError as error:  # so few ids may be shorter than what is asked for
                    print(f"{method} cannot forecast {family} from {ids} ids: {error}", flush=True)
                    continue
                label = {"table": family, "variable": task.name, "ids": ids, "method": method}
                spent = {"seconds": round(time.process_time() - start, 2)}
                rows.append(label | measure(task, answers) | spent)
                print(json.dumps(rows[-1]), flush=True)
    wide = pd.DataFrame(rows).pivot(index=["ids", "table"], columns="method", values="mae")
    print(wide.to_string(float_format="{:.3f}".format))
    if {"fine-tuned", "from scratch"} <= set(wide):
        both = wide.dropna()
        is_won = both["fine-tuned"] < both["from scratch"]
        for ids, won in is_won.groupby(level="ids"):
            print(f"{ids} ids: fine-tuning wins {won.sum()} of {len(won)} tables")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
