import io
import tarfile

import pytest

from tauflow.errors import DataError
from tauflow_papers.datasets.real.physionet2012 import read_all_records
from tauflow_papers.datasets.real.physionet_records import VARIABLES, parse_record, read_deaths

HR, URINE, AGE = (VARIABLES.index(name) for name in ("HR", "Urine", "Age"))
HEADER = "Time,Parameter,Value\n"


def test_equal_times_are_averaged_and_time_zero_has_a_row():
    text = HEADER + "00:07,HR,70\n00:07,HR,80\n00:07,Urine,5\n47:59,HR,1\n"
    record = parse_record(text.encode(), "a.txt", 1)
    assert record.times.tolist() == pytest.approx([0, 0.112, 2999 * 0.016])
    assert record.values[:, HR].tolist() == [0, 75, 1]
    assert record.observed[:, URINE].tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"a\.txt begins with 'nothing', expected 'Time,Parameter,Value'"),
        ("Time,Value\n", r"a\.txt begins with 'Time,Value'"),
        (HEADER + "00:00,HR\n", r"a\.txt, line 2 has 2 fields, expected 3"),
        (HEADER + "00:00,HR,1\n0:99,HR,2\n", r"line 3: Time is '0:99', expected hours and"),
        (HEADER + "00:00,Pulse,1\n", r"line 2: Parameter is 'Pulse', expected RecordID or one of"),
        (HEADER + "00:00,HR,high\n", r"line 2: Value is 'high', expected a finite number"),
        (HEADER + "00:00,HR,nan\n", r"line 2: Value is 'nan', expected a finite number"),
        (HEADER + "01:00,HR,1\n00:30,HR,1\n", r"line 3: time 00:30 is before .* Sort the lines"),
        (HEADER + "00:00,RecordID,2\n", r"line 2: RecordID is 2, expected 1, the name of the"),
        (HEADER + "00:00,HR,1°\n", r"a\.txt is not plain text"),
    ],
)
def test_malformed_records_are_refused(text, message):
    with pytest.raises(DataError, match=message):
        parse_record(text.encode(), "a.txt", 1)


def pack(path, records):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in records.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_small_archive(tmp_path):
    record = HEADER + "00:00,RecordID,{}\n00:00,Age,{}\n01:00,HR,9\n"
    archive = pack(
        tmp_path / "set-a.tar.gz",
        {"set-a/8.txt": record.format(8, 60), "./set-a/7.txt": record.format(7, 50)},
    )
    outcomes = tmp_path / "Outcomes-a.txt"
    outcomes.write_text("RecordID,SAPS-I,In-hospital_death\n8,1,1\n7,2,0\n")
    table = read_all_records([outcomes, archive])
    assert table["values"][:, AGE].tolist() == [50, 0, 60, 0]
    assert (table["died"].tolist(), table["counts"].tolist()) == ([0, 1], [2, 2])
    outcomes.write_text("RecordID,SAPS-I,In-hospital_death\n8,1,1\n")
    with pytest.raises(DataError, match=r"2 records and .* 1 outcome, and record 7 is in one"):
        read_all_records([outcomes, archive])
    outcomes.write_text("RecordID,In-hospital_death\n8,yes\n")
    with pytest.raises(DataError, match=r"line 2: In-hospital_death is 'yes', expected 0 or 1"):
        read_deaths(outcomes)
    outcomes.write_text("RecordID,Death\n8,1\n")
    with pytest.raises(DataError, match=r"no column 'In-hospital_death'; it has: RecordID, Death"):
        read_deaths(outcomes)
    archive.write_bytes(archive.read_bytes()[:60])
    with pytest.raises(DataError, match="is not a whole tar archive"):
        read_all_records([outcomes, archive])
