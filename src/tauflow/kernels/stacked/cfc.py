"""The closed form for a stack of networks: one call of the compiled loops for all of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tauflow.cells.cfc_heads import CfCConfig, CfCParameters
from tauflow.kernels.cfc import config as arrays
from tauflow.kernels.cfc.config import (
    EMPTY,
    CfCKernel,
    CoreActivations,
    allocate_activations,
    pack_code,
    pack_weights,
)
from tauflow.kernels.cfc.numba_kernel import (
    NO_ACTIVATIONS,
    NO_LSTM,
    _load_kernels,
    get_sum_sizes,
)
from tauflow.kernels.cpu.binding import (
    ConstantArgument,
    count_slices,
    import_kernels,
    initial_grad_state,
    input_array,
    input_array_or_empty,
)
from tauflow.kernels.engine.autograd import run_kernel
from tauflow.kernels.engine.kernel_spec import (
    DT,
    Gradients,
    GradOutputs,
    Inputs,
    NeedsInputGrad,
    Outputs,
    SequenceKernel,
    X,
)
from tauflow.kernels.engine.workspace import empty


def run_stacked_cfc(
    config: CfCConfig, mask: Tensor | None, x: Tensor, h: Tensor, dt: Tensor, *parameters: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the states of networks at every step, (n, B, T, N), and the last ones, (n, B, N).

    Args:
        config: what the networks are beside their tensors.
        mask: (n, B, T) bool, false where the state is kept, or ``None``.
        x: (n, B, T, I).
        h: states before the first step, (n, B, N).
        dt: (n, B, T, 1).
        *parameters: the :class:`~tauflow.cells.cfc_heads.CfCParameters` of all networks.
    """
    time_first = [None if one is None else one.transpose(1, 2) for one in (mask, x, dt)]
    valid, rows, gaps = time_first
    assert rows is not None
    assert gaps is not None
    y, last = run_kernel(_STACKED_CFC, config, valid, rows.contiguous(), h, gaps, *parameters)
    return y.transpose(1, 2), last


class StackedCfC(SequenceKernel):
    """All sequences of all networks in one call of the loops.

    What a single network has as (B, T, ...) is (n, T, B, ...) here: steps are on the second axis,
    as for every kernel.
    """

    name = "closed_form/stacked"

    @staticmethod
    def update(config: CfCConfig, *tensors: Tensor) -> Tensor:
        """Take one step of every network's cell."""
        step: Callable[..., Tensor] = torch.func.vmap(partial(CfCKernel.update, config))
        return step(*tensors)

    def allocate(
        self, config: CfCConfig, inputs: Inputs, needs_input_grad: NeedsInputGrad
    ) -> Outputs:
        """Return memory for what :meth:`forward` writes."""
        x, h, _, *parameters = inputs
        (n, T, B, own), N = x.shape, h.shape[2]
        out = Outputs(h.new_empty(n, B, T, N).transpose(1, 2), torch.empty_like(h))
        if not needs_input_grad:
            return out
        one = CfCParameters(*(tensor[0] for tensor in parameters))
        # the networks stand where a single one has its sequences
        tape = allocate_activations(config, T, n * B, one, saves_all_steps=True, allocate=empty)
        kept = (_split_networks(tensor, n) for tensor in tape.unique_tensors())
        return out._replace(saved_tensors=(empty(n, T, B, own + N), *kept))

    def forward(
        self,
        config: CfCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps."""
        x, h, dt, *parameters = inputs
        n, _, B, _ = x.shape
        activations: Any = NO_ACTIVATIONS
        source, *kept = out.saved_tensors or (EMPTY[3],)
        if kept:
            activations = CoreActivations.from_tensors(config, kept).to_arrays()
        _run(
            _load_kernels().cfc_forward,
            *(n, B),
            pack_code(config),
            pack_weights(parameters, 1),
            activations,
            NO_LSTM,
            arrays.CfCSequence(
                *_pack_times(dt, mask),
                *(input_array(x.transpose(1, 2)), out.y.transpose(1, 2)),
                *(input_array(h), out.last, source, EMPTY[3]),
            ),
        )

    def backward(
        self,
        config: CfCConfig,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs."""
        x, h, dt, *parameters = inputs
        (n, T, B, own), packed = x.shape, CfCParameters(*parameters)
        source, *kept = saved_tensors
        tape, grad_y = CoreActivations.from_tensors(config, kept), grad_outputs.y
        grad_h = initial_grad_state(grad_outputs.last, h)
        heads = empty(*tape.heads.shape)
        first = empty(*tape.first.shape) if config.layers else heads
        deep = empty(*tape.deep.shape)
        grad_x = x.new_empty(n, B, T, own) if needs_input_grad[X] else None
        grad_dt = dt.new_zeros(n, B, T) if needs_input_grad[DT] else None
        sizes = get_sum_sizes(parameters)
        sums = dt.new_zeros(n, count_slices(n * B), sum(sizes))
        grad_y = None if grad_y is None else grad_y.transpose(1, 2)
        _run(
            _load_kernels().cfc_backward,
            *(n, B),
            pack_code(config),
            pack_weights(packed, 1),
            NO_LSTM,
            arrays.CfCSequence(
                *_pack_times(dt, mask),
                *(_or_empty(grad_x, 3), _or_empty(grad_y, 3)),
                *(EMPTY[2], EMPTY[2], EMPTY[3], EMPTY[3]),
            ),
            (tape.to_arrays(), arrays.CfCPreactivationGrads(first, deep, heads, EMPTY[3])),
            arrays.CfCGradCarry(grad_h, EMPTY[2], _or_empty(grad_dt, 2), sums),
        )
        grad_rate, grad_amplitude, *grad_biases = sums.sum(1).split(sizes, dim=1)
        first_rows = _flatten_steps(first)[:, :, : packed.first.shape[1]]
        grad_layers = _compute_layer_gradients(config, packed, tape, deep, heads)
        return [
            None if grad_x is None else grad_x.transpose(1, 2),
            grad_h,
            None if grad_dt is None else grad_dt.transpose(1, 2).unsqueeze(-1),
            first_rows.mT @ _flatten_steps(source),
            grad_biases[0] if config.layers else None,
            *grad_layers,
            *(grad_biases[1], grad_rate, grad_amplitude),
        ]


_STACKED_CFC = StackedCfC()


def _compute_layer_gradients(
    config: CfCConfig, packed: CfCParameters, tape: CoreActivations, deep: Tensor, heads: Tensor
) -> list[Tensor | None]:
    """Return the gradients of the weights above the first layer, and of the deep layers' biases.

    Args:
        config: of the networks.
        packed: their parameters.
        tape: what the forward loop wrote.
        deep: gradients of the products of the deep layers, (n, L - 1, T, B, U).
        heads: those of the heads, (n, T, B, K N).
    """
    if not config.layers:
        return [None, None, None]
    values = [tape.first, *tape.deep.unbind(1)]
    head_rows = _flatten_steps(heads)[:, :, : packed.heads_bias.shape[1]]
    grad_heads = head_rows.mT @ _flatten_steps(values[-1])
    if config.layers == 1:
        return [None, None, grad_heads]
    below = zip(deep.unbind(1), values, strict=False)
    grad_deep = [_flatten_steps(delta).mT @ _flatten_steps(value) for delta, value in below]
    return [torch.stack(grad_deep, dim=1), deep.sum((2, 3)), grad_heads]


def _flatten_steps(tensor: Tensor) -> Tensor:
    """Return (n, T, B, F) as (n, T B, F)."""
    return tensor.flatten(1, 2)


def _split_networks(tensor: Tensor, n: int) -> Tensor:
    """Return memory for n B sequences, (..., n B, F), as that of n networks, (n, ..., B, F)."""
    *axes, rows, width = tensor.shape
    return tensor.view(n, *axes, rows // n, width)


def _pack_times(dt: Tensor, mask: Tensor | None) -> tuple[Any, Any]:
    """Return gaps and mask of all networks."""
    valid = _EMPTY_MASK if mask is None else input_array(mask.transpose(1, 2))
    return input_array(dt.squeeze(-1).transpose(1, 2)), valid


def _or_empty(tensor: Tensor | None, axes: int) -> Tensor | ConstantArgument:
    """Return a tensor of networks, or an empty array of as many axes for each of them."""
    return EMPTY[axes] if tensor is None else input_array(tensor)


_EMPTY_MASK = ConstantArgument(input_array_or_empty(None, 2, torch.bool))


def _run(loop: Any, networks: int, count: int, *arguments: Any) -> None:
    import_kernels("stacked.launch").parallel_for_stack(loop, networks, count, *arguments)
