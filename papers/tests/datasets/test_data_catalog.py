import hashlib
from dataclasses import replace

import pytest
import torch

from tauflow.batch import SequenceBatch
from tauflow.data import registry
from tauflow.data.card import DatasetCard, TaskData
from tauflow.data.datasets.pendulum import PENDULUM
from tauflow.errors import (
    ArgumentError,
    DataError,
    DataNotFoundError,
    OptionError,
    UnknownNameError,
)
from tauflow.training.losses import LOSSES
from tauflow.training.metrics import METRICS
from tauflow_papers.datasets.synthetic.xor import XOR_DENSE

NAMES = [
    "pendulum",
    "half-cheetah",
    "walker2d",
    "xor-dense",
    "xor-event",
    "seq-mnist",
    "event-mnist",
    "gesture",
    "occupancy",
    "ozone",
    "traffic",
    "power",
    "power-hourly",
    "har",
    "person-activity",
    "physionet2012",
    "physionet-forecast",
    "physionet-mortality",
    "imdb",
    "character-trajectories",
    "speech-commands",
    "flip-flop",
    "ornstein-uhlenbeck",
    "lane-keeping",
    *(f"board-{name}" for name in ("pbc", "toenail", "cgm", "nafld", "wages", "fev")),
    *(f"board-{name}" for name in ("parity", "repressilator", "mapk")),
    *(f"board-{name}" for name in ("characters", "physionet", "walker2d", "eeg")),
]
NO_ADDRESS = {"tables", "uea_long"}
"""Folders of files that are exported from packages, and have no address to download."""


@pytest.fixture
def registered(monkeypatch):
    """Register data sets for the time of a test."""
    monkeypatch.setattr(registry.DATASETS, "_entries", dict(registry.DATASETS))
    monkeypatch.setattr(registry._LOADERS, "_entries", dict(registry._LOADERS))
    return registry.register


def test_catalog_lists_the_data_sets():
    assert list(registry.DATASETS) == NAMES


@pytest.mark.parametrize("card", registry.DATASETS.values(), ids=NAMES)
def test_cards_name_known_losses_and_metrics(card):
    assert card.loss in LOSSES
    assert card.metric in METRICS
    assert card.notes
    assert card.licence
    assert bool(card.files) == bool(card.folder)
    has_address = bool(card.folder) and card.folder not in NO_ADDRESS
    assert card.base_url.startswith("https://") == has_address


@pytest.mark.parametrize(
    "function", [registry.load_task, registry.is_available, registry.fetch_dataset]
)
def test_unknown_name_suggests_the_nearest(function):
    with pytest.raises(
        UnknownNameError, match=r"unknown data set 'walker'\. Did you mean 'walker2d'\?"
    ):
        function("walker")


def test_unknown_option_suggests_the_nearest():
    with pytest.raises(OptionError, match=r"no option 'hold_out'\. Did you mean 'holdout'\?"):
        registry.load_task("xor-dense", hold_out=0.1)
    with pytest.raises(OptionError, match=r"'half-cheetah' has no option 'seed'\. It has none\."):
        registry.load_task("half-cheetah", seed=1)


def test_generated_data_are_always_available(tmp_path):
    assert registry.is_available("pendulum", tmp_path)
    assert registry.fetch_dataset("pendulum", tmp_path) is None


def test_files_are_available_once_they_are_there(registered, tmp_path):
    digest = hashlib.sha256(b"content").hexdigest()
    registered(replace(PENDULUM, name="toy", folder="toy", files={"a.npy": digest}), None)
    assert not registry.is_available("toy", tmp_path)
    with pytest.raises(DataNotFoundError, match=r"toy: a\.npy not found .* no address to download"):
        registry.fetch_dataset("toy", tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.npy").write_bytes(b"content")
    assert registry.is_available("toy", tmp_path)
    assert registry.fetch_dataset("toy", tmp_path) == tmp_path / "toy"


def test_registered_data_set_is_loaded_with_its_options(registered, tmp_path):
    batch = SequenceBatch(x=torch.zeros(2, 3, 5), y=torch.zeros(2, 3, 3))
    seen = {}

    def load(root, *, download=True, scale=1.0):
        seen.update(root=root, download=download, scale=scale)
        return TaskData(card, batch, None, batch)

    card = replace(PENDULUM, name="own", sizes=(2, 0, 2))
    registered(card, load)
    assert registry.load_task("own", root=tmp_path, download=False, scale=3.0).train is batch
    assert seen == {"root": tmp_path, "download": False, "scale": 3.0}
    with pytest.raises(ArgumentError, match="'own' is registered already"):
        registry.register(card, load)


def test_unexpected_number_of_sequences_is_refused(registered):
    batch = SequenceBatch(x=torch.zeros(2, 3, 5), y=torch.zeros(2, 3, 3))
    card = replace(PENDULUM, name="own", sizes=(3, 1, 2))
    registered(card, lambda root, *, download: TaskData(card, batch, None, batch))
    with pytest.raises(DataError, match=r"gave \(2, 0, 2\) .* expected \(3, 1, 2\)"):
        registry.load_task("own")


def test_card_refuses_an_unknown_task():
    with pytest.raises(
        UnknownNameError, match=r"task='regression' is unknown\. Did you mean 'regress'\?"
    ):
        replace(XOR_DENSE, task="regression")


def test_card_refuses_sizes_below_one():
    with pytest.raises(ArgumentError, match="target_size must be at least 1"):
        replace(XOR_DENSE, target_size=0)
    assert isinstance(XOR_DENSE, DatasetCard)


def test_card_names_every_target_or_none():
    assert len(PENDULUM.targets) == PENDULUM.target_size
    assert replace(PENDULUM, targets=()).targets == ()
    with pytest.raises(ArgumentError, match=r"each of the 3 target values, got 2: x, y\. Name all"):
        replace(PENDULUM, targets=("x", "y"))


def test_card_of_a_forecast_or_of_images_fits_its_sizes():
    with pytest.raises(ArgumentError, match="there are 6 targets and 5 inputs"):
        replace(PENDULUM, targets=(), target_size=6)
    assert replace(PENDULUM, input_size=24, image_size=(3, 2, 4)).image_size == (3, 2, 4)
    with pytest.raises(
        ArgumentError, match=r"input_size=5 is not that of images of \(3, 2, 4\), 24"
    ):
        replace(PENDULUM, image_size=(3, 2, 4))


def test_task_data_moves_as_one():
    data = registry.load_task("pendulum", sizes=(2, 1, 1), steps=3)
    moved = data.to("meta")
    assert {p.x.device.type for p in (moved.train, moved.valid, moved.test)} == {"meta"}
    assert moved.card is data.card
