"""The file of the trained weights."""

import json
from pathlib import Path

from tauflow._internal.atomic_write import atomic_write_many
from tauflow._internal.tensor_file import encode_tensor_file, read_tensor_file
from tauflow.errors import ModelFileError

from .network import NetworkOptions, ZeroShotNetwork
from .train import CHECKPOINT, KIND, take_tensors

WEIGHTS_KIND = "pretrained forecaster"
WEIGHTS = Path(__file__).with_name("weights.safetensors")
"""Of the package; their record is beside them, with the ending .json."""


def export_training(folder: Path, file: Path) -> None:
    """Write the averaged weights of a training run and, beside them, its record as JSON.

    Args:
        folder: that of the run.
        file: where the weights go.

    Raises:
        ModelFileError: the folder has no checkpoint, or it is damaged.
    """
    tensors, metadata = read_tensor_file(
        folder / CHECKPOINT, KIND, error=ModelFileError, advice="Train again."
    )
    data = encode_tensor_file(
        WEIGHTS_KIND,
        take_tensors(tensors, "average"),
        {"network": metadata["network"], "licence": "Apache-2.0", "record": metadata["record"]},
    )
    text = json.dumps(metadata["record"], indent=1) + "\n"
    atomic_write_many({file: data, file.with_suffix(".json"): text.encode()})


def load_weights(file: Path = WEIGHTS) -> ZeroShotNetwork:
    """Return the network of a file of :func:`export_training`, by default that of the package.

    Raises:
        ModelFileError: it is no file of weights, or damaged: its checksum does not match.
    """
    tensors, metadata = read_tensor_file(
        file, WEIGHTS_KIND, error=ModelFileError, advice="Install tauflow again."
    )
    network = ZeroShotNetwork(NetworkOptions(**metadata["network"]))
    network.load_state_dict(tensors)
    return network.eval()
