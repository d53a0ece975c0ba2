"""The steps of networks that are trained in one stack."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tauflow.batch import SequenceBatch, collate
from tauflow.errors import NonFiniteError
from tauflow.training import make_optimizer
from tauflow.training.denormals import flush_denormals
from tauflow.training.optim import attach_constraints, set_learning_rate
from tauflow.training.trainer import Trainer
from tauflow.training.training_run import TrainingRun

from .stack import ModuleStack, named_tensors

_ELEMENTWISE_OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")


class NotStackableError(Exception):
    """Networks cannot take their first step in a stack; the message says why."""


class StackOfRuns:
    """Networks in training whose parameters are rows of those of a stack.

    Args:
        members: numbers of the networks.
        runs: their trainings. Recipes that take the same steps share one optimizer; else each
            network has its own, which moves its rows.
    """

    def __init__(self, members: list[int], runs: Sequence[TrainingRun]) -> None:
        self.members, self.losses = members, [run.measures.loss for run in runs]
        self.trainers = [run.trainer for run in runs]
        self.module = ModuleStack([trainer.model for trainer in self.trainers])
        stacked = [tensor for _, tensor in named_tensors(self.module.module)]
        self._own = [[one for _, one in named_tensors(t.model)] for t in self.trainers]
        for row, own in enumerate(self._own):
            for tensor, whole in zip(own, stacked, strict=True):
                tensor.data = whole.data[row]
        self.parameters = [one for one in self.module.parameters() if one.requires_grad]
        self._has_run = False
        self.optimizer: torch.optim.Optimizer | None = None
        if _take_same_steps(self.trainers):
            self.optimizer = make_optimizer(self.trainers[0].recipe, self.parameters)
            attach_constraints(self.module, self.optimizer)
            for parameter, states in self._list_states():
                if all(states):
                    self.optimizer.state[parameter] = {
                        name: _copy(value)
                        if _is_common(name, value)
                        else torch.stack([state[name] for state in states])
                        for name, value in states[0].items()
                    }

    def _list_states(self) -> list[tuple[nn.Parameter, list[dict[str, Any]]]]:
        """Return the parameters, each with what the optimizers of all networks keep of it."""
        return [
            (parameter, [t.optimizer.state[t.parameters[place]] for t in self.trainers])
            for place, parameter in enumerate(self.parameters)
        ]

    def share_state(self) -> None:
        """Give each network's optimizer its share of what the common one keeps."""
        if self.optimizer is None:
            return
        for parameter, states in self._list_states():
            for name, value in self.optimizer.state[parameter].items():
                for row, state in enumerate(states):
                    state[name] = _copy(value if _is_common(name, value) else value[row])

    def release(self) -> None:
        """Give each network parameters and a state of its own; the stack is of no use then."""
        self.share_state()
        for tensor in chain.from_iterable(self._own):
            tensor.data, tensor.grad = tensor.data.clone(), None

    @flush_denormals()
    def compute_losses(self, rows: Sequence[Tensor | slice]) -> list[tuple[float, float]]:
        """Return each network's loss and its divisor, and leave its gradients in its parameters.

        Args:
            rows: of the batch of each network.

        Raises:
            NonFiniteError: of a loss or a state.
            DataError: a batch has no entry that counts.
            NotStackableError: at the first step, if they cannot be trained so.
        """
        first, count = self.trainers[0], len(self.trainers)
        joined = self._join_batches(rows)
        if first.trims_padding:
            joined = joined.trim_padding(has_label_sets=first.allows_multiple_labels)
        before = None if self._has_run else torch.get_rng_state()
        try:
            prediction = self.module(**_split(joined, count))[0]
        except (TypeError, RuntimeError) as error:  # of torch.vmap, which some models do not suit
            if before is None:
                raise
            reason = str(error).partition("\n")[0]
            raise NotStackableError(f"they cannot be called as one ({reason})") from error
        if before is not None and not torch.equal(before, torch.get_rng_state()):
            raise NotStackableError("they draw random numbers in training, as dropout does")
        self._has_run = True
        size = len(joined) // count
        found = [
            loss.compute_with_divisor(prediction[i], joined[slice(i * size, (i + 1) * size)])
            for i, loss in enumerate(self.losses)
        ]
        values = torch.stack([loss for loss, _ in found])
        if not values.requires_grad or not bool(values.isfinite().all()):
            raise NonFiniteError  # a step of each network by itself says more
        for parameter in self.parameters:
            parameter.grad = None
        values.sum().backward()
        divisors = [float(divisor) for _, divisor in found]
        return list(zip(values.tolist(), divisors, strict=True))

    def _join_batches(self, rows: Sequence[Tensor | slice]) -> SequenceBatch:
        data = [trainer.data for trainer in self.trainers]
        if all(one is data[0] for one in data):
            return data[0][torch.cat([_to_indices(part) for part in rows])]
        return collate([one[part] for one, part in zip(data, rows, strict=True)])

    def move_parameters(self) -> Iterator[Callable[[], None]]:
        """Yield what moves the parameters of each network, by the gradients that are there."""
        if self.optimizer is not None:
            _clip_each(self.parameters, self.trainers[0].recipe.clip_norm)
            set_learning_rate(self.optimizer, self.trainers[0].lr)
            self.optimizer.step()
            yield from (trainer.finish_step for trainer in self.trainers)
            return
        for place, parameter in enumerate(self.parameters):
            if parameter.grad is not None:
                for trainer, gradient in zip(self.trainers, parameter.grad, strict=True):
                    trainer.parameters[place].grad = gradient
        yield from (trainer.apply_gradients for trainer in self.trainers)


def _is_common(name: str, value: Any) -> bool:
    """Whether an entry of an optimizer's state is the same for all networks."""
    return name == "step" or not isinstance(value, Tensor)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


_STOPPING_FIELDS = (
    *("epochs", "patience", "on_divergence", "eval_batch_size"),
    *("select", "select_by", "score_last_epoch"),
)
"""Fields of a recipe that change no step."""


def _take_same_steps(trainers: Sequence[Trainer]) -> bool:
    """Whether one optimizer can take the steps of all networks at once, at the same rates."""
    first = trainers[0].recipe
    if first.optimizer not in _ELEMENTWISE_OPTIMIZERS or first.clip == "per_tensor":
        return False
    if first.schedule not in ("constant", "exponential", "cosine"):
        return False
    # A cosine ends with the last epoch.
    ignored = {*_STOPPING_FIELDS} - ({"epochs"} if first.schedule == "cosine" else set())
    told = [
        {name: value for name, value in trainer.recipe.to_dict().items() if name not in ignored}
        for trainer in trainers
    ]
    sequences = {trainer.schedule.sequences for trainer in trainers}
    return len(sequences) == 1 and all(one == told[0] for one in told)


def _to_indices(rows: Tensor | slice) -> Tensor:
    return rows if isinstance(rows, Tensor) else torch.arange(rows.start, rows.stop)


def _split(joined: SequenceBatch, networks: int) -> dict[str, Tensor | None]:
    """Return the arguments of a stack from the batches of all networks, one after the other."""
    given = {"x": joined.x, "dt": joined.dt, "mask": joined.mask, "observed": joined.observed}
    if joined.observed is None:
        del given["observed"]
    return {
        name: None if value is None else value.view(networks, -1, *value.shape[1:])
        for name, value in given.items()
    }


@torch.no_grad()
def _clip_each(parameters: Sequence[nn.Parameter], clip_norm: float | None) -> None:
    """Scale each network's gradients down to a norm, as ``clip_grad_norm_`` does."""
    if clip_norm is None:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    scale = (clip_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient *= scale.view(-1, *(1,) * (gradient.ndim - 1))
