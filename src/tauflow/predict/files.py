"""The file of a predictor: weights, how to build the model, and what is known of the data.

It is a tensor file, see :mod:`tauflow._internal.tensor_file`: nothing in it is pickled.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tauflow._internal.checks import check_one_of, find_type_mismatch
from tauflow._internal.tensor_file import read_tensor_file, write_tensor_file
from tauflow.batch import SequenceBatch
from tauflow.data.card import DatasetCard
from tauflow.data.imputation import IMPUTE_STRATEGIES
from tauflow.data.stored import card_from_dict, card_to_dict
from tauflow.data.table.info import TableInfo
from tauflow.data.table.options import DEFAULT_SPLIT, TableOptions
from tauflow.data.table.times import UNITS
from tauflow.errors import DataNotFoundError, ModelFileError, TauflowError
from tauflow.export.files import PREDICTOR, build_module, collect_tensors, get_file_config
from tauflow.sequence import SequenceModule

from .predictions import get_classes
from .predictor import Predictor

KIND = "predictor"
K = TypeVar("K")
VERSION = 1
"""Of what the facts of the file mean; a newer one is refused."""
_ADVICE = "Copy it again from its source, or train again."


def save_predictor(predictor: Predictor, path: Path) -> None:
    """Write a predictor; see :meth:`Predictor.save`."""
    facts = {
        "version": VERSION,
        "model": get_file_config(predictor.model),
        "card": card_to_dict(predictor.card),
        "table": None if predictor.table is None else _table_info_to_dict(predictor.table),
        "observed": predictor.observed,
    }
    write_tensor_file(path, KIND, collect_tensors(predictor.model), facts)


def load_predictor(path: str | Path) -> Predictor:
    """Read what a finished run left: its model, with scales, units and names of its data.

    Args:
        path: folder of a run, or a file that :meth:`Predictor.save` wrote.

    Returns:
        The predictor, on the CPU; ``.model`` is the model, ``.card`` says what it was trained on.

    Raises:
        DataNotFoundError: there is no such file, or the run has not finished.
        ModelFileError: the file is none of a predictor, is damaged, or from a newer version, or its
            model does not fit what it says of the data.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / PREDICTOR).is_file():
            raise DataNotFoundError(
                f"{path} holds no {PREDICTOR}, which a finished 'tauflow run' leaves. Give the "
                "folder of a run, and continue one that was stopped with --resume. A model that no "
                "file can describe leaves none; the run said so."
            )
        path = path / PREDICTOR
    if not path.is_file():
        raise DataNotFoundError(f"{path} does not exist. Give the folder of a run, or its file.")
    tensors, facts = read_tensor_file(path, KIND, error=ModelFileError, advice=_ADVICE)
    version = facts.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ModelFileError(
            f"{path} is a predictor of version {version}, and this tauflow reads up to {VERSION}. "
            "Upgrade tauflow: pip install --upgrade tauflow"
        )
    try:
        card, told = card_from_dict(facts["card"]), facts["table"]
        table = None if told is None else _table_info_from_dict(told)
        if table is not None:
            _check_agreement(card, table)
        model, observed = facts["model"], bool(facts["observed"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = error if isinstance(error, TauflowError) else repr(error)
        raise ModelFileError(
            f"{path} is damaged, or from another version of tauflow ({why}). {_ADVICE}"
        ) from error
    predictor = Predictor(build_module(path, tensors, model).eval(), card, table, observed=observed)
    if why := _find_failure(predictor):
        raise ModelFileError(
            f"{path} is damaged: its model and its data disagree ({why}). {_ADVICE}"
        )
    return predictor


def _find_failure(predictor: Predictor) -> str:
    """Return why a predictor of a table cannot answer; "" if it can, or if nothing is known.

    It is tried on a made-up sequence, without kernels, which would be compiled for that.
    """
    model, card = predictor.model, predictor.card
    if predictor.table is None or not type(model).__module__.startswith("tauflow."):
        return ""
    x = torch.zeros(1, 2, card.input_size, dtype=predictor.dtype)
    seen = torch.ones_like(x, dtype=torch.bool) if predictor.observed else None
    batch = SequenceBatch(x, torch.zeros(1, 2, 1), torch.ones(1, 2), observed=seen)
    try:
        with torch.random.fork_rng(devices=[]), _use_reference_backend(model):
            predictor.predict(batch)
    except TauflowError as error:
        return str(error)
    except Exception as error:  # of torch, where sizes or dtypes do not fit
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def _use_reference_backend(model: nn.Module) -> Iterator[None]:
    """Let sequence modules run step by step for a while, by no kernel."""
    modules = [part for part in model.modules() if isinstance(part, SequenceModule)]
    backends = [part.backend for part in modules]
    try:
        for part in modules:
            part.backend = "reference"
        yield
    finally:
        for part, backend in zip(modules, backends, strict=True):
            part.backend = backend


def _table_info_to_dict(info: TableInfo) -> dict[str, Any]:
    """Return what is known of a table as JSON can hold it; of the ids none, as they are people."""
    options = info.options
    if isinstance(options.split, Mapping):
        options = replace(options, split=DEFAULT_SPLIT)
    known = replace(info, ids={}, groups={})
    facts = {field.name: getattr(known, field.name) for field in fields(known)}
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in {**facts, "options": asdict(options)}.items()
    }


def _table_info_from_dict(facts: Mapping[str, Any]) -> TableInfo:
    """Return the table that :func:`_table_info_to_dict` described."""
    said = {name: _to_tuples(value) for name, value in facts.items()}
    said["options"] = _build_checked(
        TableOptions, {k: _to_tuples(v) for k, v in facts["options"].items()}
    )
    for name in ("x_mean", "x_scale", "y_mean", "y_scale"):
        if said[name] is not None:
            said[name] = torch.tensor(said[name], dtype=torch.float64)
    return _build_checked(TableInfo, said)


def _check_agreement(card: DatasetCard, info: TableInfo) -> None:
    """Raise :class:`ValueError` if what a file says of a table is not what was learned from one."""
    _check_scales((info.x_mean, info.x_scale), info.inputs, card.input_size)
    if (info.y_mean is None or info.y_scale is None) != (card.task != "regress"):
        raise ValueError("values have a mean and a scale, and classes have none")
    if info.y_mean is not None and info.y_scale is not None:
        _check_scales((info.y_mean, info.y_scale), info.outputs, card.target_size)
    elif len(info.options.targets) != 1 or len(info.outputs) != card.target_size:
        raise ValueError(f"{len(info.outputs)} classes of {info.options.targets}")
    else:
        get_classes(info)  # which raises where names are not of the kind that they are said to be
    texts = sum(len(texts) for _, texts in info.categories)
    count = len(info.options.features or ()) - len(info.categories) + texts
    if not 0 < count <= len(info.inputs):
        raise ValueError(f"{count} inputs of features, and {len(info.inputs)} in all")
    if (info.ahead is not None and not card.forecast) or (card.horizon and card.per_step):
        raise ValueError("what is not forecast is not ahead, and a horizon has one answer")
    spans = [span for span in (info.gap, info.ahead) if span is not None]
    if not all(math.isfinite(span) and span > 0 for span in spans):
        raise ValueError(f"gap and ahead are {spans}, expected numbers above 0")
    check_one_of(IMPUTE_STRATEGIES, fill=info.fill)
    if info.dated and info.unit not in UNITS:
        raise ValueError(f"dates cannot be counted in {info.unit!r}")


def _check_scales(numbers: tuple[Tensor, Tensor], names: tuple[str, ...], size: int) -> None:
    if any(tuple(one.shape) != (size,) for one in numbers) or len(names) != size:
        raise ValueError(f"names, means and scales of {size} columns are not as many")
    if not all(bool(one.isfinite().all()) for one in numbers) or bool((numbers[1] < 0).any()):
        raise ValueError("means and scales are not finite numbers, or a scale is below 0")


def _build_checked(kind: type[K], values: dict[str, Any]) -> K:
    if wrong := find_type_mismatch(kind.__init__, values):
        raise TypeError(wrong)
    return kind(**values)


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
