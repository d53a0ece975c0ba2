"""Baselines without learning of what is one unit of time ahead at every step."""

import torch
from torch import Tensor, nn

from tauflow.data.card import TaskData
from tauflow.training.evaluation_loop import evaluate


def score_next_step_baselines(data: TaskData, metric: str) -> list[tuple[str, float]]:
    """Score what needs no learning either, where every target is one unit of time ahead.

    ``the last change again``: the inputs go on as they did since the sample before. Where time
    steps differ, also what a network would reach that is shown the next input in its place: ``next
    input, looks ahead``, and that with a straight line from the present one to it,
    ``interpolation, looks ahead``. At the last step, which has no next input, both stay as they
    are.

    Args:
        data: a forecast with a target at every step.
        metric: a name in :data:`tauflow.training.METRICS`.
    """
    size, kinds = data.card.target_size, ["the last change again"]
    if data.test.dt is not None and bool((data.test.dt != 1).any()):
        kinds += ["next input, looks ahead", "interpolation, looks ahead"]
    return [
        (kind, evaluate(_LinearExtrapolation(kind, size), data.test, metric=metric))
        for kind in kinds
    ]


class _LinearExtrapolation(nn.Module):
    """Predicts along a straight line of the first inputs; see :func:`score_next_step_baselines`."""

    def __init__(self, kind: str, size: int) -> None:
        super().__init__()
        self.kind, self.size = kind, size

    def forward(self, x: Tensor, *, dt: Tensor | None, **_: Tensor | None) -> tuple[Tensor, None]:
        x = x[..., : self.size]
        gap = torch.ones_like(x[..., :1]) if dt is None else dt.reshape(*x.shape[:2], 1)
        slope = x.diff(dim=1) / gap[:, 1:]
        still = torch.zeros_like(x[:, :1])
        if self.kind == "the last change again":
            return x + torch.cat([still, slope], dim=1), None
        if self.kind == "interpolation, looks ahead":
            return x + torch.cat([slope, still], dim=1), None
        return torch.cat([x[:, 1:], x[:, -1:]], dim=1), None
