"""Policies for Stable-Baselines3 where it is not installed."""

import sys
from functools import partial

import pytest

import tauflow
from tauflow.compat.sb3 import RecurrentPolicy
from tauflow.errors import MissingExtraError


def test_without_sb3_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(MissingExtraError, match="sb3_contrib is not installed"):
        RecurrentPolicy(None, None, lambda _: 1e-3, rnn=partial(tauflow.CfC, hidden_size=4))
