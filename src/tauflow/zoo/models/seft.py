"""Set functions for time series: a sequence as the set of its measured values, with attention."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_within
from tauflow.models.stateless import AbstractStatelessModel, get_observed
from tauflow.sequence.inputs import SequenceInputs

from .time_encoding import sinusoids


class SeFT(AbstractStatelessModel):
    r"""Set function for time series, with attention.

    Every measured value is an element of a set, in no order: e = [sines and cosines of its time;
    value; one-hot channel]. Three dense networks, psi, phi and g, make of a set S, for each head,

    .. math::
        c = \frac{1}{|S|} \sum_{e \in S} \psi(e), \qquad
        a_e = \mathrm{softmax}_{e \in S}\, \frac{q^\top W_k [e; c]}{\sqrt{n_k}}, \qquad
        s = \sum_{e \in S} a_e\, \phi(e)

    and the output is g of all heads' s, (B, H). An empty set has c = 0 and s = 0. Times are
    absolute: pass ``t``, or ``dt`` with the first sample's time as its first time step.

    Source: Horn et al. 2020, "Set functions for time series"; sizes and what the paper leaves open
    as in the authors' code.

    Differs from the code: features that do not change over time are no separate element; a
    linear head on g is left to :class:`~tauflow.models.SequenceModel`; where dropout would take the
    attention off every element, it takes it off none. Differs from the paper, as the code does: no
    further network on the mean c.

    With E = 2 ``time_scales`` + 1 + D, and M(w_0, ..., w_n) = sum_i (w_(i-1) + 1) w_i, the model
    has M(E, phi, ..., phi, latent) + M(E, psi, ..., psi) + heads n_k (E + psi + 1)
    + M(heads latent, H, ..., H) parameters.

    Args:
        input_size: channels D per time point.
        hidden_size: width H of the output.
        phi_layers: hidden layers of phi.
        phi_size: their width.
        latent_size: outputs of phi.
        psi_layers: hidden layers of psi; one more of the same width is its output.
        psi_size: their width.
        g_layers: layers of g, of width H.
        heads: attention heads.
        key_size: n_k, width of each head's keys.
        time_scales: number of scales of the time encoding, from 1 to ``longest``.
        longest: largest time scale, in the unit of times.
        dropout: probability of dropping a unit of the hidden layers of phi and of g.
        attention_dropout: probability of taking a head's attention off an element.
    """

    paper: ClassVar[str] = "Horn et al. 2020, Set functions for time series"
    uses_observed: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        phi_layers: int = 3,
        phi_size: int = 32,
        latent_size: int = 128,
        psi_layers: int = 2,
        psi_size: int = 128,
        g_layers: int = 3,
        heads: int = 4,
        key_size: int = 64,
        time_scales: int = 2,
        longest: float = 100.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.3,
    ) -> None:
        channels, width = (
            check_at_least(1, input_size=input_size),
            check_at_least(1, hidden_size=hidden_size),
        )
        super().__init__(channels, width, return_sequences=False)
        self.heads = check_at_least(1, heads=heads)
        self.key_size = check_at_least(1, key_size=key_size)
        self.time_scales = check_at_least(1, time_scales=time_scales)
        self.longest = check_within(1.0, float("inf"), longest=longest)
        self.dropout = check_within(0.0, 1.0, dropout=dropout)
        self.attention_dropout = check_within(0.0, 1.0, attention_dropout=attention_dropout)
        element = 2 * time_scales + 1 + channels
        phi = repeat_counted(
            check_at_least(1, phi_size=phi_size), check_at_least(0, phi_layers=phi_layers)
        )
        psi = repeat_counted(
            check_at_least(1, psi_size=psi_size), check_at_least(0, psi_layers=psi_layers) + 1
        )
        latent = check_at_least(1, latent_size=latent_size)
        self.phi = _make_dense_layers(element, [*phi, latent], dropout)
        self.psi = _make_dense_layers(element, psi, 0.0)
        self.g = _make_dense_layers(
            heads * latent, repeat_counted(width, check_at_least(1, g_layers=g_layers)), dropout
        )
        self.W_k = nn.Parameter(torch.empty(heads * key_size, element + psi_size))
        self.q = nn.Parameter(torch.empty(heads, key_size))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw matrices He uniform; biases and queries are 0, so that attention starts even."""
        for parameter in self.parameters():
            if parameter.ndim == 2 and parameter is not self.q:
                nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)
            else:
                nn.init.zeros_(parameter)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the output for each sequence's set, (B, H)."""
        return self.encode_sets(*self.to_elements(inputs.x, times, get_observed(inputs)))

    def to_elements(self, x: Tensor, times: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sets, (B, S, E), and which elements of them are there, (B, S) bool.

        Args:
            x: (B, T, D), finite everywhere.
            times: (B, T), absolute.
            observed: (B, T, D) bool.
        """
        is_element = observed.flatten(1)
        # Of most data sets few values are measured: the networks run on those, not on all T D.
        order = torch.argsort((~is_element).to(torch.uint8), dim=1, stable=True)
        order = order[:, : _max_set_size(is_element)]
        step, channel = order // self.input_size, order % self.input_size
        when = sinusoids(times.gather(1, step), self.time_scales, self.longest)
        value = x.flatten(1).gather(1, order).unsqueeze(-1)
        which = torch.eye(self.input_size, dtype=x.dtype, device=x.device)[channel]
        return torch.cat([when, value, which], dim=-1), is_element.gather(1, order)

    def encode_sets(self, elements: Tensor, mask: Tensor) -> Tensor:
        """Return the output for sets of elements, (B, H); their order does not matter.

        Args:
            elements: (B, S, E).
            mask: (B, S) bool, false where a set has no further element.
        """
        attention = self.attention_weights(elements, mask)
        pooled = torch.einsum("bsh,bsl->bhl", attention, self.phi(elements))
        output: Tensor = self.g(pooled.flatten(1))
        return output

    def attention_weights(self, elements: Tensor, mask: Tensor) -> Tensor:
        """Return each head's weights on the elements, (B, S, heads); see encode_sets."""
        mask = mask.unsqueeze(-1)
        count = mask.sum(1, keepdim=True).clamp(min=1)
        mean = (self.psi(elements) * mask).sum(1, keepdim=True) / count
        inputs = torch.cat([elements, mean.expand(-1, elements.shape[1], -1)], dim=-1)
        keys = (inputs @ self.W_k.T).unflatten(-1, (self.heads, self.key_size))
        logits = (keys * self.q).sum(-1) / math.sqrt(self.key_size)
        allowed = mask.expand_as(logits)
        if self.training and self.attention_dropout:
            not_dropped = allowed & (torch.rand_like(logits) >= self.attention_dropout)
            allowed = torch.where(not_dropped.any(1, keepdim=True), not_dropped, allowed)
        # A finite floor instead of minus infinity: the softmax of an empty set stays finite.
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        weights: Tensor = logits.softmax(dim=1) * mask
        return weights


def _make_dense_layers(inputs: int, widths: list[int], dropout: float) -> nn.Sequential:
    """Return dense layers with ReLU after each, and dropout after all but the last."""
    layers: list[nn.Module] = []
    for number, width in enumerate(widths, start=1):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        if dropout and number < len(widths):
            layers.append(nn.Dropout(dropout))
        inputs = width
    return nn.Sequential(*layers)


def _max_set_size(mask: Tensor) -> int:
    """Return the size of the largest set, or of the largest possible while torch only traces."""
    if (
        torch.compiler.is_compiling()
        or torch._C._functorch.is_functorch_wrapped_tensor(mask)
        or mask.shape[0] == 0
    ):
        return mask.shape[1]
    return max(1, int(mask.sum(1).max()))
