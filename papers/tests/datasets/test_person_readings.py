import numpy as np
import pytest
from person_file import FILE, ROW, made, written

from tauflow.data.registry import load_task
from tauflow.errors import ArgumentError, DataError, DataNotFoundError, TimeError, UnknownNameError
from tauflow_papers.datasets.real import person_activity
from tauflow_papers.datasets.real.person_activity import read_readings


def test_published_example_line(tmp_path):
    (tmp_path / FILE).write_text(ROW)
    parsed = read_readings([tmp_path / FILE])
    position = np.float32([4.292500972747803, 2.0738532543182373, 1.36650812625885])
    assert parsed["x"].tolist() == [[0, 0, 1, 0, *position]]
    assert parsed["y"].tolist() == [3]
    assert parsed["ticks"].tolist() == [633790226057226795]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (ROW.replace("020-000-033-111", "020"), "column 'tag' holds '020', expected one of"),
        (ROW.replace("walking", "flying"), "column 'activity' holds 'flying'"),
        (ROW.replace("A01", "F01"), "column 'recording' holds 'F01'"),
        (ROW.replace("633790226057226795", "6.3e17"), "column 'ticks' holds '6.3e17', .* integer"),
        (ROW.replace("4.29", "x"), "column 'x' holds 'x25"),
        (ROW + ",1", "line 2 has 9 fields, expected 8"),
    ],
)
def test_malformed_line_is_located(tmp_path, line, message):
    (tmp_path / FILE).write_text(f"{ROW}\n{line}\n")
    with pytest.raises(DataError, match=f"{FILE}, line 2.*{message.removeprefix('line 2')}"):
        read_readings([tmp_path / FILE])


def test_wrong_files_and_options_are_refused(tmp_path, monkeypatch):
    rows = made()
    root = written(tmp_path, rows, monkeypatch)

    def load(**options):
        return load_task("person-activity", root=root, download=False, **options)

    assert load().card.name == "person-activity"
    with pytest.raises(ArgumentError, match="setting must be 1, 2 or 3, got 4"):
        load(setting=4)
    with pytest.raises(UnknownNameError, match="Choose from: random, by_subject"):
        load(split="by_time")
    with pytest.raises(DataNotFoundError, match=r"JSI\.txt not found"):
        load_task("person-activity", root=tmp_path / "none", download=False)
    monkeypatch.setattr(person_activity, "ROWS", 164_860)
    with pytest.raises(DataError, match=r"JSI\.txt has [\d,]+ rows, expected 164,860"):
        load()
    written(tmp_path, [row for row in rows if row[0] != "C03"], monkeypatch)
    with pytest.raises(DataError, match="has 24 recordings, expected 25"):
        load()
    written(tmp_path, [rows[1], rows[0], *rows[2:]], monkeypatch)
    with pytest.raises(TimeError, match="times run backwards"):
        load(setting=3)
