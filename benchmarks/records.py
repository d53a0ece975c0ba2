"""PhysioNet 2012 as one long table for ``tauflow run``, and what gradient boosting makes of it."""

import argparse
import io
import tarfile
from pathlib import Path

import pandas

from tauflow.data.store import fetch_files
from tauflow_papers.datasets.real.physionet2012 import PHYSIONET2012

LONG = ("variable", "value")
STATIC = ("Age", "Gender", "Height", "ICUType")
SAID = {"id": "record", "time": "hours", "target": "died", "long": LONG, "static": STATIC}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the table's path, and a run to compare."""
    parser.add_argument("table", type=Path, help="CSV file, which is written unless it is there")
    parser.add_argument("--run", dest="trained", type=Path, help="folder of a run on that table")
    parser.set_defaults(run=run)


def written(path: Path) -> Path:
    """Write set A, a row per value: record, hours, variable, value, died; -1 is no value."""
    files = {file.name: file for file in fetch_files(PHYSIONET2012)}
    outcomes = pandas.read_csv(files.pop("Outcomes-a.txt"), index_col="RecordID")
    deaths, (records,) = outcomes["In-hospital_death"], files.values()
    parts = []
    with tarfile.open(records) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is None or not member.name.endswith(".txt"):
                continue
            rows = pandas.read_csv(io.BytesIO(content.read()))
            hours = pandas.to_timedelta(rows["Time"] + ":00") / pandas.Timedelta(hours=1)
            rows = rows.assign(record=int(Path(member.name).stem), hours=hours.round(4))
            parts.append(rows[(rows["Parameter"] != "RecordID") & (rows["Value"] != -1)])
    table = pandas.concat(parts).rename(columns={"Parameter": "variable", "Value": "value"})
    table["died"] = table["record"].map(deaths)
    columns = ["record", "hours", "variable", "value", "died"]
    table.dropna(subset="variable")[columns].to_csv(path, index=False)
    return path


def boosted(table: pandas.DataFrame, trained: list[int], tested: list[int]) -> float:
    """Return the AUROC of gradient boosting on the last value and count of every variable."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    values = table.sort_values("hours", kind="stable").groupby(["record", "variable"])["value"]
    features = values.agg(["last", "count"]).unstack()
    died = table.groupby("record")["died"].first()
    model = HistGradientBoostingClassifier(random_state=0).fit(
        features.loc[trained].to_numpy(), died.loc[trained]
    )
    probabilities = model.predict_proba(features.loc[tested].to_numpy())[:, 1]
    return float(roc_auc_score(died.loc[tested], probabilities))


def run(arguments: argparse.Namespace) -> None:
    """Print the AUROC of both on the ids that ``tauflow run`` keeps for its test."""
    from sklearn.metrics import roc_auc_score

    from tauflow.data import from_table
    from tauflow.predict import load_predictor

    path = arguments.table if arguments.table.exists() else written(arguments.table)
    ids = from_table(path, duplicates="last", **SAID).schema.ids
    parts = {part: [int(name) for name in names] for part, names in ids.items()}
    table = pandas.read_csv(path)
    print(f"gradient boosting: {boosted(table, parts['train'], parts['test']):.4f}")
    if arguments.training_sequences is not None:
        rows = table[table["record"].isin(parts["test"])]
        predictions = load_predictor(arguments.training_sequences).predict_proba(rows)
        died = table.groupby("record")["died"].first().loc[predictions["record"].astype(int)]
        print(f"{arguments.training_sequences}: {roc_auc_score(died, predictions['1']):.4f}")
