"""What commands say of odd terminals, paths and mistakes that are easily made."""

import warnings
from pathlib import Path

import pytest

from tauflow.cli import main as cli
from tauflow.cli.table_options import resolve_source
from tauflow.errors import ShiftWarning


def test_a_file_in_the_place_of_a_data_set_is_a_table(call, tmp_path):
    (tmp_path / "my visits").write_text("a,b\n1,2\n")
    for name in ("visits.csv", "visits.csv.gz", "visits.parquet", "my visits"):
        assert resolve_source(name, None, {"id": "a"}) == resolve_source(
            None, Path(name), {"id": "a"}
        )
    assert "there is no file visits.csv" in call("run", "visits.csv", code=1).stderr


def test_ctrl_c_before_a_command_is_found_ends_quietly(monkeypatch):
    def stop(**options):
        raise KeyboardInterrupt

    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # as it was, after
    monkeypatch.setattr(cli, "app", stop)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130


def test_warnings_are_their_messages_alone(monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # as it was, after
    monkeypatch.setattr(cli, "app", lambda **options: None)
    cli.main()
    warning = ShiftWarning("other units\x1b[2J")
    assert warnings.formatwarning(warning, ShiftWarning, "cli.py", 1) == (
        "warning: other units\ufffd[2J\n"
    )
