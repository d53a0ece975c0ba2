"""What was fitted to a table, and its file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tauflow._internal.regular_file import check_file_path
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.errors import ModelFileError
from tauflow.export.files import convert_damage
from tauflow.tabular.schema import Schema

from .blend import Blend
from .network import NetworkOptions, ZeroShotNetwork
from .population import Population
from .train import take_tensors

KIND = "fitted pretrained forecaster"
_ADVICE = "Give the file that PretrainedForecaster.save wrote, or fit and save it again."


@dataclass
class FittedTable:
    """What a fit keeps of one target.

    Args:
        population: members to compare with.
        blend: fitted to them, or ``None`` of too few.
        network: fine-tuned, or ``None`` where no step was better than none.
        step: of the training that did best on validation.
    """

    population: Population
    blend: Blend | None
    network: ZeroShotNetwork | None
    step: int

    @property
    def is_whole(self) -> bool:
        """Whether all values of the members are whole numbers."""
        known = self.population.y[~np.isnan(self.population.y)]
        return bool((known == np.round(known)).all())


def write_fitted(
    path: Path,
    base: ZeroShotNetwork,
    tables: Mapping[Any, FittedTable],
    schema: Schema,
    *,
    blend: bool,
    is_timed: bool | None,
) -> None:
    """Write a network and what was fitted to each target, replacing ``path`` in one step.

    Args:
        path: of the file.
        base: the network that was loaded.
        tables: what was fitted, by target.
        schema: of the table.
        blend: whether to blend.
        is_timed: whether the fit had times; ``None`` if it is not known.
    """
    tensors = {f"base.{key}": tensor for key, tensor in base.state_dict().items()}
    described = []
    for place, (name, table) in enumerate(tables.items()):
        network = {} if table.network is None else table.network.state_dict()
        tensors |= {f"{place}.network.{key}": tensor for key, tensor in network.items()}
        tensors[f"{place}.t"] = torch.from_numpy(table.population.t)
        tensors[f"{place}.y"] = torch.from_numpy(table.population.y)
        fitted = None if table.blend is None else asdict(table.blend)
        if fitted is not None:
            fitted["weights"] = fitted["weights"].tolist()
        described.append({"target": name, "step": table.step, "blend": fitted})
    metadata = {"blend": blend, "network": asdict(base.options), "schema": schema.to_dict()}
    metadata |= {"tables": described, "is_timed": is_timed}
    write_tensor_file(path, KIND, tensors, metadata)


def read_fitted(
    path: str | Path,
) -> tuple[ZeroShotNetwork, dict[Any, FittedTable], Schema, bool, bool | None]:
    """Return network, fitted tables, schema, whether to blend, and if the fit had times, of a file.

    The last is ``None`` of old files.

    Raises:
        ModelFileError: :func:`write_fitted` did not write it, or it is damaged.
    """
    path = check_file_path(path, "a fitted pretrained forecaster", advice=_ADVICE)
    tensors, metadata = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    with convert_damage(path, advice=_ADVICE):
        options, tables = NetworkOptions(**metadata["network"]), {}
        for place, described in enumerate(metadata["tables"]):
            t, y = (tensors[f"{place}.{key}"].numpy() for key in "ty")
            blend = described["blend"]
            if blend is not None:
                blend["weights"] = np.array(blend["weights"])
            tables[described["target"]] = FittedTable(
                Population(t, y, np.arange(0), np.arange(0)),
                None if blend is None else Blend(**blend),
                _build(options, take_tensors(tensors, f"{place}.network")),
                described["step"],
            )
        base = _build(options, take_tensors(tensors, "base"))
        if base is None:
            raise KeyError("base")
        schema = Schema.from_dict(metadata["schema"])
        return base, tables, schema, bool(metadata["blend"]), metadata.get("is_timed")


def _build(options: NetworkOptions, tensors: dict[str, Tensor]) -> ZeroShotNetwork | None:
    if not tensors:
        return None
    network = ZeroShotNetwork(options)
    network.load_state_dict(tensors)
    return network.eval()
