"""One sample of each sequence, as a call of a sequence module."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tauflow._internal.checks import check_bool_tensor, check_floating_point, shape_error
from tauflow.errors import ArgumentError
from tauflow.kernels.cpu.binding import check_memory

from .states import State, concat_parts, initial_states

if TYPE_CHECKING:
    from .sequence_module import SequenceModule


def run_single_step(
    module: "SequenceModule",
    x: Tensor,
    h: State | None,
    dt: Tensor | float,
    observed: Tensor | None,
    episode_start: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Advance by one sample; see :meth:`.SequenceModule.step` for the arguments."""
    where = f"{type(module).__name__}.step"
    check_memory(x, h, dt, observed, episode_start)
    if module.bidirectional:
        raise ArgumentError(
            f"{where}: a bidirectional module needs the whole sequence. Build one with "
            "bidirectional=False."
        )
    if check_floating_point(where, x=x).ndim not in (1, 2):
        raise shape_error(where, "x", x, "(B, I) or (I,)", "One sample per sequence.")
    if episode_start is not None:
        h = _restart_episodes(
            where,
            module,
            h,
            check_bool_tensor(where, episode_start=episode_start),
            tuple(x.shape[:-1]),
        )
    if isinstance(dt, Tensor) and dt.ndim == x.ndim - 1:
        dt = dt.unsqueeze(-1)
    seen = None if observed is None else observed.unsqueeze(-2)
    y, state = module(x.unsqueeze(-2), h, dt=dt, observed=seen)
    return y.squeeze(-2) if module.return_sequences else y, state


def _restart_episodes(
    where: str,
    module: "SequenceModule",
    h: State | None,
    episode_start: Tensor,
    batch: tuple[int, ...],
) -> Tensor | None:
    """Return the state with the initial one where sequences start again, if there is a state."""
    if tuple(episode_start.shape) != batch:
        raise shape_error(
            where, "episode_start", episode_start, str(batch), "One entry per sequence."
        )
    if h is None:
        return None
    cells = module.each_cell
    if not isinstance(h, Tensor) or h.ndim > 1 + len(batch):
        h = concat_parts(where, cells, h, batch)
    expected = (*batch, module.state_size)
    if tuple(h.shape) != expected:
        raise shape_error(where, "h", h, str(expected), "Pass on the h of an earlier call.")
    start = initial_states(where, cells, 1)
    return torch.where(episode_start.unsqueeze(-1), start if batch else start[0], h)
