"""t-PatchGNN: patches of time, filled as each channel was sampled, and graphs of channels."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from tauflow._internal.allocation_limit import repeat_counted
from tauflow._internal.checks import check_at_least, check_within
from tauflow._internal.sanitize import format_count
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.errors import ArgumentError
from tauflow.models.stateless import AbstractStatelessModel, get_observed
from tauflow.sequence.inputs import SequenceInputs

from .latent_encoders import make_dense_net
from .time_encoding import sinusoids
from .transformer import TransformerBlock

_EPSILON = 1e-12
_LONGEST = 10_000.0


class TPatchGNN(AbstractStatelessModel):
    r"""Transformable patching graph network: what every channel is at the time of every row.

    Time up to the horizon is cut into M patches. With the embedding :math:`\phi(t)` of a time, a
    line and sines, a filter as long as there are samples reads those of channel n in patch m:

    .. math::
        z_i = [x_i; \phi(t_i)], \qquad F_i = \mathrm{MLP}(z_i), \qquad
        h_{nm} = \Big[\mathrm{relu}\Big(\sum_i \mathrm{softmax}_i(F_i)\, z_i + b\Big);
        1 \text{ if there are any}\Big]

    In each of L layers the patches of a channel attend to each other, their numbers encoded, and
    the channels of a patch exchange along a graph that depends on what is in it:

    .. math::
        E' = E + g\, W_E h, \qquad g = \mathrm{relu}(\tanh(w_E [h; E])), \qquad
        A = \mathrm{softmax}(\mathrm{relu}(E'_1 E_2'^T)), \qquad
        h \leftarrow \mathrm{relu}(W [h; A^T h] + c)

    with two embeddings E of the channels, each as written; from the second layer on h is added to
    what a layer returns. A dense layer joins the patches of a channel, and a net with two hidden
    layers of ReLUs decodes

    .. math::
        \hat x_n(t) = \mathrm{MLP}([W_o [h_{n1}; \ldots; h_{nM}] + b_o; \phi(t)])

    The answer at a row, (B, T, D), follows from all samples of its sequence, later ones too: it is
    not causal. Rows at which nothing was measured only ask. Times are absolute: pass ``t``, or
    ``dt`` with the first sample's time as its first time step; samples beyond the horizon belong to
    the last patch.

    Source: Zhang et al. 2024, "Irregular multivariate time series forecasting: a transformable
    patching graph neural networks approach", and its released code, whose settings for PhysioNet
    are ``hidden_size=64, patches=3, horizon=24.0``.

    Differs from the released code: the Transformer's blocks are those of
    :class:`~tauflow.models.Transformer`, normalised first and with a dense layer of 4 H; a patch
    without samples holds relu(b), where the code reads its padding; times count in horizons, where
    it counts in those of the data.

    Args:
        input_size: channels D per time point, and one more input with ``targets``.
        hidden_size: width H, even, a multiple of ``heads``.
        targets: channels to forecast, by number; then the last input is 1 at rows that are queries
            and 0 at samples, as for :class:`~tauflow.models.ForecastModel`, and the answer at
            samples is 0. By default all inputs are channels, and all are answered at all rows.
        patches: M.
        horizon: end of the last patch, in the unit of times; the first begins at 0. That of what
            is known when queries are answered.
        layers: L.
        heads: attention heads.
        time_size: length of the embedding of a time.
        node_size: length of the embeddings of a channel.
        dropout: of the Transformer's blocks.
    """

    paper: ClassVar[str] = "Zhang et al. 2024, Transformable patching graph neural networks"
    uses_observed: ClassVar[bool] = True
    has_per_step_output: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False
    has_head: ClassVar[bool] = True
    answers_queries: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        targets: Sequence[int] | None = None,
        patches: int = 3,
        horizon: float = 24.0,
        layers: int = 1,
        heads: int = 1,
        time_size: int = 10,
        node_size: int = 10,
        dropout: float = 0.1,
    ) -> None:
        D = check_at_least(1, input_size=input_size) - (targets is not None)
        H = check_at_least(2, hidden_size=hidden_size)
        E = check_at_least(2, time_size=time_size)
        if H % 2 or H % check_at_least(1, heads=heads):
            raise ArgumentError(
                f"hidden_size={H} must be even, for sines and cosines, and a multiple of "
                f"heads={heads}."
            )
        chosen = tuple(range(D) if targets is None else targets)
        if not chosen or not all(0 <= number < D for number in chosen):
            raise ArgumentError(
                f"targets={targets!r}: expected numbers of the {format_count(D, 'channel')}, from "
                "0 on; one of the inputs says which rows are queries."
            )
        super().__init__(input_size, len(chosen), return_sequences=True)
        self.channels, self.hidden_size, self.targets = D, H, chosen
        self.has_query_input = targets is not None
        self.patches = check_at_least(1, patches=patches)
        self.horizon = check_within(_EPSILON, math.inf, horizon=horizon)
        self.embedding = nn.Linear(1, E)
        width = H - 1
        self.filters = make_dense_net([1 + E, width, width, (1 + E) * width], nn.ReLU)
        self.bias = nn.Parameter(torch.empty(width))
        self.nodes = nn.Parameter(torch.empty(2, D, check_at_least(1, node_size=node_size)))
        self.layers = nn.ModuleList(
            _Layer(size, heads, node_size, check_within(0.0, 1.0, dropout=dropout))
            for size in repeat_counted(H, check_at_least(1, layers=layers))
        )
        self.join = nn.Linear(self.patches * H, H)
        self.decoder = make_dense_net([H + E, H, H, 1], nn.ReLU)
        self.reset_parameters()

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw dense layers as torch does, embeddings of channels and the filters' bias N(0, 1)."""
        for tensor in (self.bias, self.nodes):
            nn.init.normal_(tensor, generator=generator)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                for tensor in part.parameters():
                    torch_uniform_(tensor, part.in_features, generator)
            elif isinstance(part, nn.LayerNorm):
                part.reset_parameters()

    def embed_times(self, times: Tensor) -> Tensor:
        """Return phi of times (...), (..., E)."""
        angles = self.embedding((times / self.horizon).unsqueeze(-1))
        return torch.cat([angles[..., :1], angles[..., 1:].sin()], dim=-1)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the channels that are asked for at the times of the rows, (B, T, O)."""
        x, observed = inputs.x, get_observed(inputs)
        asks = torch.ones_like(times, dtype=torch.bool)
        if self.has_query_input:
            asks = (x[..., -1] > 0) & observed[..., -1]
            observed = observed[..., :-1] & ~asks.unsqueeze(-1)
        h = self.read_patches(x, times, observed)
        place = torch.arange(self.patches, dtype=h.dtype, device=h.device)
        for index, layer in enumerate(self.layers):
            after = layer(h + sinusoids(place, self.hidden_size // 2, _LONGEST), self.nodes)
            h = h + after if index else after
        state = self.join(h.flatten(2))[:, list(self.targets)]  # (B, O, H)
        row, step = asks.nonzero(as_tuple=True)
        when = self.embed_times(times[row, step]).unsqueeze(1).expand(-1, len(self.targets), -1)
        answer = self.decoder(torch.cat([state[row], when], dim=-1)).squeeze(-1)  # (Q, O)
        answers: Tensor = answer.new_zeros(*asks.shape, answer.shape[-1])
        return answers.index_put((row, step), answer)

    def read_patches(self, x: Tensor, times: Tensor, observed: Tensor) -> Tensor:
        """Return what the samples put into the patches, (B, D, M, H).

        Args:
            x: (B, T, D), finite where it was observed.
            times: (B, T).
            observed: (B, T, D) bool.
        """
        b, step, channel = observed.nonzero(as_tuple=True)
        when = times[b, step]
        patch = (when * (self.patches / self.horizon)).long().clamp(0, self.patches - 1)
        z = torch.cat([x[b, step, channel].unsqueeze(-1), self.embed_times(when)], dim=-1)
        filters = self.filters(z).unflatten(-1, (-1, z.shape[-1]))  # (P, H - 1, 1 + E)
        shape = len(x), self.channels, self.patches
        place = (b * self.channels + channel) * self.patches + patch
        empty = filters.new_zeros(math.prod(shape), *filters.shape[1:])
        places = place[:, None, None].expand_as(filters)
        top = empty.scatter_reduce(0, places, filters.detach(), "amax", include_self=False)
        weights = torch.exp(filters - top[place])
        weights = weights / empty.to(weights.dtype).index_add(0, place, weights)[place]
        read = (weights * z.unsqueeze(-2)).sum(-1)
        total = read.new_zeros(empty.shape[:2]).index_add(0, place, read)
        marks = torch.zeros_like(total[:, 0]).index_fill(0, place, 1.0).unsqueeze(-1)
        h: Tensor = torch.cat([torch.relu(total + self.bias), marks], dim=-1).unflatten(0, shape)
        return h


class _Layer(nn.Module):
    """Attention between patches, then exchange between channels.

    Args:
        size: width H.
        heads: attention heads.
        node_size: length of the embeddings of a channel.
        dropout: of the attention's block.
    """

    def __init__(self, size: int, heads: int, node_size: int, dropout: float) -> None:
        super().__init__()
        self.block = TransformerBlock(size, heads, dropout)
        self.shifts = nn.ModuleList(nn.Linear(size, node_size) for _ in range(2))
        self.gates = nn.ModuleList(nn.Linear(size + node_size, 1) for _ in range(2))
        self.mix = nn.Linear(2 * size, size)

    def forward(self, h: Tensor, nodes: Tensor) -> Tensor:
        """Return the new h, (B, D, M, H), given embeddings of the channels, (2, D, K)."""
        everywhere = torch.ones(1, 1, h.shape[2], h.shape[2], dtype=torch.bool, device=h.device)
        h = self.block(h.flatten(0, 1), everywhere).unflatten(0, h.shape[:2])
        h = h.transpose(1, 2)  # (B, M, D, H)
        moved = []
        for node, shift, gate in zip(nodes, self.shifts, self.gates, strict=True):
            embedding = node.expand(*h.shape[:-1], -1)
            opened = torch.relu(torch.tanh(gate(torch.cat([h, embedding], dim=-1))))
            moved.append(embedding + opened * shift(h))
        graph = torch.relu(moved[0] @ moved[1].mT).softmax(dim=-1)
        mixed: Tensor = torch.relu(self.mix(torch.cat([h, graph.mT @ h], dim=-1)))
        return mixed.transpose(1, 2)
