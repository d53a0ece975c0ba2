"""Fixtures that several files share."""

import pytest

from tauflow.data import store


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv(store.DATA_VARIABLE, raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)
    return tmp_path / "cache" / "tauflow" / "data"
