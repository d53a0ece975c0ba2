"""Files that are replaced in one step keep what their owner set."""

import os

import pytest

from tauflow._internal.atomic_write import write_atomically


@pytest.mark.skipif(os.name == "nt", reason="files have no modes there")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_keeps_its_permissions(mode, tmp_path):
    path = tmp_path / "model.json"
    write_atomically(path, b"1")
    path.chmod(mode)
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2"
    assert path.stat().st_mode & 0o777 == mode
