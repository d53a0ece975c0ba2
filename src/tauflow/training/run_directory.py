"""The directory of one training run: what it is, how it went, where it stands, its best weights."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tauflow._internal.atomic_write import PARTIAL_SUFFIX, add_path_to_errors, write_atomically
from tauflow._internal.json_io import parse_json
from tauflow._internal.locks import lock_folder
from tauflow._internal.tensor_file import hash_tensors
from tauflow.batch import SequenceBatch
from tauflow.errors import CheckpointError

from .checkpoint import Checkpoint, read_checkpoint, read_tensors, write_checkpoint, write_tensors
from .recipe import LENGTH_DEPENDENT_SCHEDULES, Recipe

_DEFAULTS = json.loads(json.dumps(Recipe().to_dict()))
_LOCK_TIMEOUT = 5.0  # seconds
_ADVICE = (
    "Two trainings in one directory would mix their files: wait until that one ends, or stop it "
    "(every finished epoch is kept), or choose another directory."
)


def lock_run_directory(path: Path) -> AbstractContextManager[None]:
    """Own the directory of a run, making it if need be; only its owner writes into it.

    Raises:
        BusyError: another program, or another part of this one, owns it and goes on doing so.
    """
    return lock_folder(path, advice=_ADVICE, timeout=_LOCK_TIMEOUT)


class RunDirectory:
    """Files of one run.

    ``run.json`` says what the run is, ``log.jsonl`` has one line per epoch, ``last.safetensors`` is
    the checkpoint and ``best.safetensors`` holds the best weights so far. The checkpoint is written
    before the two that follow from it, so that a run killed in between loses nothing:
    :meth:`read_last_checkpoint` brings them up to date. Writers hold :func:`lock_run_directory`.

    Args:
        path: the directory.
        description: what tells this run from others, as JSON can hold it.
    """

    def __init__(self, path: Path, description: Mapping[str, Any]) -> None:
        self.path = path
        # Through JSON and back, so that it compares equal to what was read.
        self.description: dict[str, Any] = json.loads(json.dumps(description))
        self._run, self._log = path / "run.json", path / "log.jsonl"
        self._last, self._best = path / "last.safetensors", path / "best.safetensors"

    def claim(self) -> None:
        """Claim the directory for a new run.

        Raises:
            CheckpointError: the directory holds a run already.
        """
        for file in (self._run, self._log, self._last, self._best):
            if file.exists():
                raise CheckpointError(
                    f"{self.path} holds a run already ({file.name}). Pass resume=True to continue "
                    "it, or choose another directory."
                )
        self._write_description()

    def read_last_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint to continue from, or claim a directory that holds no run yet.

        A run may be given more epochs than it had, and then goes on: nothing else depends on them.
        It may be evaluated in batches of another size, as after one that did not fit in memory.

        Raises:
            CheckpointError: the directory holds another run, or a damaged one.
        """
        if not self.open_or_claim():
            return None
        if not self._last.exists():  # killed before the first checkpoint
            self._log.unlink(missing_ok=True)  # of a run whose copy was cut off
            return None
        checkpoint = read_checkpoint(self._last)
        if checkpoint.best_epoch is not None and checkpoint.best_epoch == checkpoint.epoch:
            self._write_best(checkpoint)  # it may have died between the two files
        lines = "".join(json.dumps(row) + "\n" for row in checkpoint.history)
        write_atomically(self._log, lines.encode())
        return checkpoint

    def open_or_claim(self) -> bool:
        """Return whether the directory holds this run; one that holds none is claimed.

        Raises:
            CheckpointError: the directory holds another run, or a damaged one.
        """
        if not self._run.exists():
            self.claim()
            return False
        if self._compare_description():
            self._write_description()
        for leftover in self.path.glob(f".*{PARTIAL_SUFFIX}"):
            leftover.unlink()
        return True

    def save(self, checkpoint: Checkpoint) -> None:
        """Put the state after an epoch on disk."""
        self.overwrite(checkpoint)
        if checkpoint.history:
            with add_path_to_errors(self._log), self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(checkpoint.history[-1]) + "\n")

    def overwrite(self, checkpoint: Checkpoint) -> None:
        """Put the state after an epoch on disk that is in the log already."""
        write_checkpoint(self._last, checkpoint)
        if checkpoint.best_epoch is not None and checkpoint.best_epoch == checkpoint.epoch:
            self._write_best(checkpoint)

    def read_best_weights(self, epoch: int) -> dict[str, Tensor]:
        """Return the best weights, those after ``epoch``.

        Raises:
            CheckpointError: the file is unreadable, or holds the weights of another epoch.
        """
        weights, metadata = read_tensors(self._best, "weights file")
        if metadata.get("epoch") != epoch:
            raise CheckpointError(
                f"{self._best} holds the weights of epoch {metadata.get('epoch')}, but the "
                f"best epoch was {epoch}. Restore the directory from a copy, or delete it and "
                "train again."
            )
        return weights

    def _write_best(self, checkpoint: Checkpoint) -> None:
        metadata = {"epoch": checkpoint.epoch, "metric": checkpoint.best_metric}
        weights = checkpoint.averaged or checkpoint.model
        write_tensors(self._best, "weights file", weights, metadata)

    def _write_description(self) -> None:
        write_atomically(self._run, (json.dumps(self.description, indent=2) + "\n").encode())

    def _compare_description(self) -> bool:
        """Return whether the run changes in a way that it may; refuse any other change."""
        try:
            stored = parse_json(self._run.read_bytes())
            # An option that is younger than the run had its default.
            stored["recipe"] = {**_DEFAULTS, **stored["recipe"]}
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self._run} is damaged. Restore it from a copy, or delete {self.path} and train "
                "again."
            ) from error
        stored.pop("model", None)  # options of the model, which runs once described
        recorded, now = _flatten(stored), _flatten(self.description)
        free = {"recipe.eval_batch_size"} & now.keys()
        if now.get("recipe.schedule") not in LENGTH_DEPENDENT_SCHEDULES:
            free |= {
                name for name in ("recipe.epochs",) if now.get(name, 0) > recorded.get(name, 0)
            }
        differences = [
            f"{key} was {recorded.get(key, 'absent')!r}, is {now.get(key, 'absent')!r}"
            for key in sorted((recorded.keys() | now.keys()) - free)
            if recorded.get(key) != now.get(key)
        ]
        if differences:
            raise CheckpointError(
                f"{self.path} holds another run: {'; '.join(differences)}. Call train() as that "
                "run was called (only its epochs may become more, and eval_batch_size change), or "
                "choose another directory."
            )
        return any(recorded[key] != now[key] for key in free)


def compute_fingerprint(
    model: nn.Module, splits: Mapping[str, SequenceBatch | None]
) -> dict[str, str | None]:
    """Return digests of a model's structure and of the data: a run resumes with the same ones.

    The model's values are left out, as resuming replaces them, and so are the options that it was
    built with.
    """
    shapes = [f"{k}:{v.dtype}:{tuple(v.shape)}" for k, v in model.state_dict().items()]
    # The optimiser knows its moments by place among the parameters that are trained.
    shapes += [f"{k}:frozen" for k, v in model.named_parameters() if not v.requires_grad]
    structure = hashlib.blake2b("\n".join(shapes).encode(), digest_size=16).hexdigest()
    digests: dict[str, str | None] = {"model": structure}
    for name, split in splits.items():
        digests[name] = None if split is None else hash_tensors(split.tensors())
    return digests


def _flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
