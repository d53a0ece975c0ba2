"""Digests of everything that real tables become, to hold readers of tables to the last bit.

``python -m benchmarks.freeze.tables ROOT`` writes ``tests/frozen/tables.json``: what is said of
each table stands there beside what was made of it.
"""

import gzip
import hashlib
import io
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

FROZEN = Path(__file__).parents[2] / "tests" / "frozen"
ROWS = 15_000
"""Longer tables are cut after so many rows."""


def open_rows(path: Path) -> io.StringIO:
    """Return the first rows of a packed CSV file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        return io.StringIO("".join(islice(lines, ROWS)))


def describe(path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return digests of the parts of a table, its names, ids, scales and numbers of rows."""
    import tauflow

    data = tauflow.data.from_table(open_rows(path), **options)
    schema = data.schema
    assert schema is not None
    values: dict[str, Any] = {
        "inputs": digest(schema.inputs),
        "outputs": digest(schema.outputs),
        "ids": digest({part: list(ids) for part, ids in schema.ids.items()}),
        "categories": digest(schema.categories),
        "scales": digest([scaling.tolist() for scaling in (schema.x_mean, schema.x_scale)]),
        "target scales": digest(None if schema.y_scale is None else schema.y_scale.tolist()),
        "times": [schema.dated, schema.unit, schema.gap, schema.ahead],
        "sizes": list(data.card.sizes),
    }
    for part in ("train", "valid", "test"):
        batch = getattr(data, part)
        for name in ("x", "dt", "mask", "observed", "y", "y_mask", "weight"):
            tensor = getattr(batch, name)
            if tensor is not None:
                content = tensor.contiguous().numpy()
                values[f"{part} {name}"] = digest(
                    f"{content.dtype} {content.shape}", content.tobytes()
                )
    return values


def digest(*parts: Any) -> str:
    """Return a short hash of bytes, or of what JSON can say."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part if isinstance(part, bytes) else json.dumps(part).encode())
    return hasher.hexdigest()[:16]


def answer(root: Path, key: str, frozen: dict[str, Any], folder: Path) -> Any:
    """Return numbers that a saved predictor, or estimator, answers with, a few of them."""
    import numpy as np
    import pandas

    import tauflow
    from tauflow import estimators

    file = folder / f"{key.replace(', ', '-').replace(' ', '-')}.safetensors"
    if key in PREDICTORS:
        rows = open_rows(root / f"{frozen[key]['table']}.csv.gz")
        predictions = tauflow.load_predictor(file).predict(rows).select_dtypes("number").to_numpy()
    else:
        table, kind, method, _ = ESTIMATORS[key]
        estimator = getattr(estimators, kind).load(file)
        predictions = getattr(estimator, method)(
            pandas.read_csv(open_rows(root / f"{table}.csv.gz"))
        )
    predictions = np.array(predictions, np.float64).reshape(len(predictions), -1)
    return predictions[:: max(1, len(predictions) // 20)]


ESTIMATORS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "classifier": (
        "pbcseq",
        "SequenceClassifier",
        "predict_proba",
        {"id": "id", "time": "day", "static": ["sex"]},
    ),
    "regressor": (
        "nafld_long",
        "SequenceRegressor",
        "predict",
        {"id": "id", "time": "days", "long": ["test", "value"], "duplicates": "mean"},
    ),
    "forecaster": (
        "nyc_weather",
        "SequenceForecaster",
        "predict",
        {"id": "origin", "time": "time_hour"},
    ),
}
PREDICTORS = ("toenail", "cgm, horizon", "pbcseq, regression", "wages, missing as inputs")
"""Tables that a predictor was saved for."""


def write_old(root: Path, frozen: dict[str, Any], folder: Path) -> None:
    """Save predictors, and estimators, of untrained networks, and what they answer."""
    import numpy as np
    import pandas
    import torch
    from safetensors.torch import save_file

    import tauflow
    from tauflow import estimators

    folder.mkdir(exist_ok=True)
    for key in PREDICTORS:
        entry = frozen[key]
        data = tauflow.data.from_table(
            open_rows(root / f"{entry['table']}.csv.gz"), **entry["options"]
        )
        torch.manual_seed(0)
        options = {} if data.card.per_step else {"return_sequences": False}
        rnn = tauflow.build("gru-d", data.card.input_size, 3, **options)
        model = tauflow.SequenceModel(rnn, data.card.target_size)
        tauflow.Predictor.from_data(model, data).save(
            folder / f"{key.replace(', ', '-').replace(' ', '-')}.safetensors"
        )
    for key, (table, kind, _, options) in ESTIMATORS.items():
        frame = pandas.read_csv(open_rows(root / f"{table}.csv.gz"))
        made = getattr(estimators, kind)(model="gru-d", hidden_size=3, epochs=1, random_state=0)
        count = frame[options["id"]].nunique()
        targets = [] if key == "forecaster" else [np.arange(count) % 2]
        made.fit(frame, *targets, **options).save(folder / f"{key}.safetensors")
    keys = (*PREDICTORS, *ESTIMATORS)
    expected = {k: torch.from_numpy(answer(root, k, frozen, folder)).contiguous() for k in keys}
    save_file(expected, folder / "expected.safetensors")


def main() -> None:
    """Make the digests of all tables again, and with ``--old`` the files of a later day's test."""
    path, root = FROZEN / "tables.json", Path(sys.argv[1])
    frozen = json.loads(path.read_text("utf-8"))
    for key, entry in frozen.items():
        entry["digests"] = describe(root / f"{entry['table']}.csv.gz", entry["options"])
        print(key, entry["digests"]["sizes"])
    path.write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")
    if "--old" in sys.argv:
        write_old(root, frozen, FROZEN / "tables")


if __name__ == "__main__":
    main()
