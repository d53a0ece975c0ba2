"""GraFITi: a graph of channels and times, whose edges are what was measured and what is asked."""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tauflow._internal.checks import check_at_least, check_positive
from tauflow._internal.sanitize import format_count
from tauflow.cells.init import Generator, torch_uniform_
from tauflow.errors import ArgumentError
from tauflow.models.stateless import AbstractStatelessModel, get_observed
from tauflow.sequence.inputs import SequenceInputs


class GraFITi(AbstractStatelessModel):
    r"""Graphs for forecasting irregular time series: values as edges between channels and times.

    Each measured value of channel c at row k is an edge with features [x; 0]; each value that is
    asked for is one with [0; 1]. Edges, channels and rows start as

    .. math::
        u_{ck} = \mathrm{relu}(W_u [x; q] + b_u), \qquad
        c = \mathrm{relu}(W_c e_c + b_c), \qquad
        \tau_k = \sin(w t_k + b)

    In each of L layers the nodes attend to their edges and the nodes at their other ends, and the
    edges follow their ends as they were before:

    .. math::
        c \leftarrow \mathrm{MAB}(c, \{[\tau_k; u_{ck}]\}_k), \qquad
        \tau_k \leftarrow \mathrm{MAB}(\tau_k, \{[c; u_{ck}]\}_c), \qquad
        u_{ck} \leftarrow \mathrm{relu}(u_{ck} + W [u_{ck}; \tau_k; c] + b)

    with M heads, each on its part of the H entries,

    .. math::
        h = W_q q + b_q + \mathrm{softmax}\big((W_q q + b_q)^T (W_k K + b_k) / \sqrt H\big)
            (W_v K + b_v), \qquad
        \mathrm{MAB}(q, K) = h + \mathrm{relu}(W_o h + b_o)

    The answer on an edge is :math:`w^T [u_{ck}; \tau_k; c] + b`. It follows from all edges of its
    sequence, later ones too, and from what else is asked: it is not causal.

    Source: Yalavarthi et al. 2024, "GraFITi: graphs for forecasting irregularly sampled time
    series", Section 4, and its released code, whose attention this is.

    Differs from the released code: a node without edges attends to nothing and keeps its query,
    where the code averages over its padding.

    Args:
        input_size: channels D per time point, and one more input with ``targets``.
        hidden_size: width H, a multiple of ``heads``.
        targets: channels to forecast, by number; then the last input is 1 at rows that are queries
            and 0 at samples, as for :class:`~tauflow.models.ForecastModel`, the answer at samples
            is 0, and other channels that are measured at queries are read. By default all channels
            are answered at all rows, and those that were not measured are what is asked.
        layers: L.
        heads: M.
        horizon: latest time, which times are divided by.
    """

    paper: ClassVar[str] = "Yalavarthi et al. 2024, GraFITi: Graphs for forecasting"
    uses_observed: ClassVar[bool] = True
    has_per_step_output: ClassVar[bool] = True
    is_causal: ClassVar[bool] = False
    has_head: ClassVar[bool] = True
    answers_queries: ClassVar[bool] = True
    has_horizon: ClassVar[bool] = True

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        targets: Sequence[int] | None = None,
        layers: int = 2,
        heads: int = 4,
        horizon: float = 1.0,
    ) -> None:
        D = check_at_least(1, input_size=input_size) - (targets is not None)
        H = check_at_least(1, hidden_size=hidden_size)
        if H % check_at_least(1, heads=heads):
            raise ArgumentError(f"hidden_size={H} must be a multiple of heads={heads}.")
        chosen = tuple(range(D) if targets is None else targets)
        if not chosen or not all(0 <= place < D for place in chosen):
            raise ArgumentError(
                f"targets={targets!r}: expected numbers of the {format_count(D, 'channel')}, from "
                "0 on; one of the inputs says which rows are queries."
            )
        super().__init__(input_size, len(chosen), return_sequences=True)
        self.channels, self.hidden_size, self.targets = D, H, chosen
        self.has_query_input = targets is not None
        self.horizon = check_positive(horizon=horizon)
        self.edge, self.channel, self.time = nn.Linear(2, H), nn.Linear(D, H), nn.Linear(1, H)
        count = check_at_least(1, layers=layers)
        self.channel_attention = nn.ModuleList(EdgeAttention(H, heads) for _ in range(count))
        self.time_attention = nn.ModuleList(EdgeAttention(H, heads) for _ in range(count))
        self.edge_updates = nn.ModuleList(nn.Linear(3 * H, H) for _ in range(count))
        self.output = nn.Linear(3 * H, 1)

    def reset_parameters(self, generator: Generator = None) -> None:
        """Draw all dense layers as torch does."""
        for part in self.modules():
            if isinstance(part, nn.Linear):
                for tensor in part.parameters():
                    torch_uniform_(tensor, part.in_features, generator)

    def encode(self, inputs: SequenceInputs, times: Tensor) -> Tensor:
        """Return the channels that are asked for at the rows, (B, T, O)."""
        x, is_measured = inputs.x, get_observed(inputs)
        valid = torch.ones_like(times, dtype=torch.bool) if inputs.mask is None else inputs.mask
        is_asked = valid.unsqueeze(-1) & ~is_measured
        if self.has_query_input:
            is_query = (x[..., -1] > 0) & is_measured[..., -1]
            is_target = torch.zeros(self.channels, dtype=torch.bool, device=x.device)
            is_target[list(self.targets)] = True
            x, is_measured = x[..., :-1], is_measured[..., :-1]
            is_asked = is_query.unsqueeze(-1) & is_target
            is_measured = is_measured & ~is_asked
        row, step, channel = (is_measured | is_asked).nonzero(as_tuple=True)
        asked = is_asked[row, step, channel]
        value = x[row, step, channel].masked_fill(asked, 0.0)

        shape = x.shape[:2]
        to_time, to_channel = row * shape[1] + step, row * self.channels + channel
        u = F.relu(self.edge(torch.stack([value, asked.to(value.dtype)], dim=-1)))
        tau = torch.sin(self.time((times / self.horizon).reshape(-1, 1)))
        c = F.relu(self.channel.weight.T + self.channel.bias).repeat(shape[0], 1)
        for of_channels, of_times, update in zip(
            self.channel_attention, self.time_attention, self.edge_updates, strict=True
        ):
            at_time, at_channel = tau[to_time], c[to_channel]
            c = of_channels(c, torch.cat([at_time, u], dim=-1), to_channel)
            tau = of_times(tau, torch.cat([at_channel, u], dim=-1), to_time)
            u = F.relu(u + update(torch.cat([u, at_time, at_channel], dim=-1)))
        answer = self.output(torch.cat([u, tau[to_time], c[to_channel]], dim=-1)).squeeze(-1)
        if self.has_query_input:
            answer = answer.masked_fill(~asked, 0.0)
        answers = answer.new_zeros(*shape, self.channels).index_put((row, step, channel), answer)
        chosen: Tensor = answers[..., list(self.targets)]
        return chosen


class EdgeAttention(nn.Module):
    """Attention of nodes to their edges, with a dense layer, both added to the query.

    Args:
        size: width H of nodes; edges are as wide as two of them.
        heads: M.
    """

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.key, self.value = nn.Linear(2 * size, size), nn.Linear(2 * size, size)
        self.dense = nn.Linear(size, size)

    def forward(self, nodes: Tensor, edges: Tensor, node: Tensor) -> Tensor:
        """Return the new nodes, (V, H).

        Args:
            nodes: (V, H).
            edges: (E, 2 H).
            node: of each edge, (E,).
        """
        query = self.query(nodes)
        query_of_edge, key, value = (
            z.unflatten(-1, (self.heads, -1))
            for z in (query[node], self.key(edges), self.value(edges))
        )
        score = (query_of_edge * key).sum(-1) / math.sqrt(query.shape[-1])  # (E, M)
        places = node.unsqueeze(-1).expand_as(score)
        empty = score.new_zeros(len(nodes), self.heads)
        top = empty.scatter_reduce(0, places, score.detach(), "amax", include_self=False)
        weight = torch.exp(score - top[node])
        weight = weight / empty.to(weight.dtype).index_add(0, node, weight)[node]
        parts = (weight.unsqueeze(-1) * value).flatten(1)  # single precision in autocast
        h: Tensor = query + parts.new_zeros(query.shape).index_add(0, node, parts)
        return h + F.relu(self.dense(h))
