"""Make a file in the format of the person activity data."""

import numpy as np

from tauflow_papers.datasets.real import person_activity
from tauflow_papers.datasets.real.person_activity import ACTIVITIES, TAGS

FILE = "ConfLongDemo_JSI.txt"
ROW = (
    "A01,020-000-033-111,633790226057226795,27.05.2009 14:03:25:723,4.292500972747803,"
    "2.0738532543182373,1.36650812625885,walking"
)
START = 633790226051280329


def made(seed=0):
    """Make 25 recordings in the original format; some rows fall into the same 10 ms."""
    rng = np.random.default_rng(seed)
    tags, labels, rows = list(TAGS), list(ACTIVITIES), []
    for name in (f"{letter}0{number}" for letter in "ABCDE" for number in range(1, 6)):
        ticks = START
        for _ in range(rng.integers(120, 260)):
            x, y, z = (repr(float(value)) for value in rng.normal(size=3))
            label = labels[rng.integers(len(labels))]
            rows.append([name, tags[rng.integers(4)], ticks, "27.05.2009 14:03:25:127", x, y, z])
            rows[-1].append(label)
            ticks += int(rng.choice([20_000, 270_298, 540_581]))
    return rows


def written(root, rows, monkeypatch):
    folder = root / "person_activity"
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text("\r\n".join(",".join(map(str, row)) for row in rows) + "\r\n")
    monkeypatch.setattr(person_activity, "ROWS", len(rows))
    return root
