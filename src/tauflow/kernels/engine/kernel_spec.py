"""What a fused kernel is: to the library a call and a row, to the engine a program."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from tauflow._internal.checks import is_tracing
from tauflow.cells.base import AbstractCell
from tauflow.errors import BackendError

from .kernel_call import KernelCall, KernelFunction, check_call, find_cell_modification


@dataclass(frozen=True)
class KernelSpec:
    """A fused implementation of one cell on one backend.

    Args:
        cell: the class it computes; ``AbstractCell`` for cells of users.
        backend: name that users choose it by.
        find_reason: returns the reason why it cannot serve a call, or ``None``; judged from
            settings, shapes, dtypes and devices alone.
        function: computes a call that has been checked.
        rtol: relative tolerance of the parity test, on values and on every gradient.
        atol: absolute tolerance of the parity test, in units of a tensor's largest entry.
        device: kind of device that ``backend="auto"`` chooses it on; ``None`` for any.
        is_profitable: whether it is faster than the rows below it for a call; ``backend="auto"``
            takes it for no other.
        plan: returns what runs calls between which nothing changes but numbers, and which of the
            tensors want gradients; ``None`` for ``function``.
    """

    cell: type[AbstractCell]
    backend: str
    find_reason: Callable[[KernelCall], str | None]
    function: KernelFunction
    rtol: float
    atol: float
    device: str | None = None
    is_profitable: Callable[[KernelCall], bool] = lambda call: True
    plan: Callable[[], KernelFunction] | None = None

    def unsupported_reason(self, call: KernelCall) -> str | None:
        """Return the reason why it cannot serve a call, or ``None``."""
        changed = None if self.cell is AbstractCell else find_cell_modification(call.cell)
        return changed or self.find_reason(call)

    def run(self, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Check a call, and compute it.

        Raises:
            ShapeError, DtypeError: a tensor does not fit the cell.
            BackendError: it cannot serve the call.
        """
        if not is_tracing():
            check_call(call)
            reason = self.unsupported_reason(call)
            if reason is not None:
                raise BackendError(
                    f"backend {self.backend!r} cannot serve this call: {reason}. Use "
                    "backend='reference'."
                )
        return self.function(call)


Inputs = Sequence[Tensor]
"""What is read at every step (B, T, I), the state before the first one (B, S), time steps (B, T,
1), and parameters: what the kernel's ``update`` takes, in the order of :data:`X` and the
following."""

X, STATE, DT = range(3)

NeedsInputGrad = Sequence[bool]
"""Which inputs want a gradient; empty if no backward pass may follow."""

Gradients = Sequence[Tensor | None]
"""Of every input; ``None`` where none is wanted, or no gradient flows."""


class Outputs(NamedTuple):
    """What a forward pass writes.

    Args:
        y: the first N entries of the state at every step, (B, T, N).
        last: the last state, (B, S).
        saved_tensors: what the backward pass reads beside the inputs.
    """

    y: Tensor
    last: Tensor
    saved_tensors: tuple[Tensor, ...] = ()


class GradOutputs(NamedTuple):
    """Incoming gradients of the results; ``None`` where a result was not used."""

    y: Tensor | None
    last: Tensor | None


class SequenceKernel:
    """One way of running the cells of a family.

    Methods take a form: all about the cell that is not a tensor, frozen and hashable.
    """

    name: str
    """Family and backend."""
    update: Callable[..., Tensor]
    """The cells' own step, ``update(config, h, x, dt, *parameters)``, of which derivatives are
    taken where the program's own backward pass does not serve."""
    saves_x: ClassVar[bool] = False
    """Whether the saved tensors hold a copy of what steps read; see :meth:`read_saved_x`."""
    needs_y: ClassVar[bool] = False
    """Whether the backward pass reads the results, which then come first among the saved tensors.
    Their holder must not change them in place."""

    @abstractmethod
    def allocate(self, config: Any, inputs: Inputs, needs_input_grad: NeedsInputGrad) -> Outputs:
        """Return memory for what :meth:`forward` writes; for tracing, too, which has no numbers."""

    @abstractmethod
    def forward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        out: Outputs,
        needs_input_grad: NeedsInputGrad,
    ) -> None:
        """Run all steps.

        Args:
            config: of the cell.
            mask: (B, T) bool, false where the state is kept, or ``None``.
            inputs: of the run.
            out: written.
            needs_input_grad: as for :meth:`allocate`.
        """

    def read_saved_x(
        self, config: Any, inputs: Sequence[Any], saved_tensors: Sequence[Tensor]
    ) -> Tensor:
        """Return what steps read, (B, T, I), of which the first saved tensor is rows (T B, I).

        Args:
            config: of the cell.
            inputs: of the run, the first of which is not kept.
            saved_tensors: of the forward pass.
        """
        rows = saved_tensors[0]
        return rows.view(inputs[DT].shape[1], -1, rows.shape[1]).transpose(0, 1)

    @abstractmethod
    def backward(
        self,
        config: Any,
        mask: Tensor | None,
        inputs: Inputs,
        saved_tensors: Sequence[Tensor],
        grad_outputs: GradOutputs,
        needs_input_grad: NeedsInputGrad,
    ) -> Gradients:
        """Return the gradients of the inputs.

        Args:
            config: of the cell.
            mask: as for :meth:`forward`.
            inputs: of the run.
            saved_tensors: what it wrote.
            grad_outputs: incoming gradients, not to be written.
            needs_input_grad: which gradients are wanted.
        """


class OperatorKernel(SequenceKernel):
    """A program that torch's compilers see as one operator, whose form is written as words.

    One that is registered in :data:`~tauflow.kernels.engine.autograd.OPERATORS` overwrites no saved
    tensor, and knows of a cell what inputs and form say.
    """

    is_eager_operator: ClassVar[bool] = False
    """Whether it is an operator in eager mode, too."""

    @staticmethod
    @abstractmethod
    def encode(config: Any) -> list[str]:
        """Return a form as words."""

    @staticmethod
    @abstractmethod
    def decode(words: Sequence[str]) -> Any:
        """Return the form that :meth:`encode` wrote."""


class BoolConfigKernel(OperatorKernel):
    """An operator whose form is a boolean."""

    @staticmethod
    def encode(config: bool) -> list[str]:
        """Return the form as a word."""
        return [str(config)]

    @staticmethod
    def decode(words: Sequence[str]) -> bool:
        """Return the form that :meth:`encode` wrote."""
        return words == ["True"]
