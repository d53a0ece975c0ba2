"""Sequence modules: a cell, stacked and in both directions, behind the library's one call."""

import inspect
from typing import Any, ClassVar, cast

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from tauflow._internal.checks import (
    check_at_least,
    check_bool,
    check_one_of,
    check_within,
)
from tauflow._internal.fixed_options import fix_part
from tauflow._internal.init_args import CaptureInitArgs, check_argument_aliases, resolve_alias
from tauflow.cells.base import AbstractCell
from tauflow.errors import ArgumentError
from tauflow.kernels import BACKENDS, KernelCall

from .base import SequenceModuleBase
from .call_plan import CallPlans
from .inputs import (
    Lengths,
    PaddedOrPacked,
    TimeSteps,
)
from .parallel.chunks import ChunkHistory, ParallelReport
from .run_call import run_call
from .single_step import run_single_step
from .states import State, initial_states, split_per_cell, to_torch_state
from .streaming.stream import Stream
from .unroll import unroll


class SequenceModule(SequenceModuleBase, metaclass=CaptureInitArgs):
    """Base of every sequence module: run a cell over sequences.

    Called as ``y, h = rnn(x, hx=None, *, dt=None, t=None, mask=None, lengths=None,
    observed=None)``; see :meth:`forward`.

    Args:
        cell: the cell of the first layer and forward direction; the others are made with
            :meth:`AbstractCell.with_input_size`.
        num_layers: stacked layers; each reads the outputs of the one below.
        bidirectional: whether each layer also runs backwards in time and concatenates.
        dropout: probability of dropping an output between layers, while training.
        proj_size: width of a bias-free linear map on every layer's output; 0 for none. Unlike that
            of ``torch.nn.LSTM`` it is not fed back into the recurrence.
        return_sequences: whether to return the output at every step, or at the last valid one.
        backend: ``"auto"``, ``"reference"`` or the name of a fused backend.
        checkpoint_every: train with memory for so many steps and one state for each such stretch,
            at the price of a second forward pass; ``None`` keeps what every step needs.
        batch_first: always True; accepted for compatibility with ``torch.nn``.
    """

    ignores_padding: ClassVar[bool] = True
    """Masked steps at the ends of sequences change nothing; see :func:`tauflow.training.train`."""
    options: dict[str, Any]

    def __init__(
        self,
        cell: AbstractCell,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        proj_size: int = 0,
        return_sequences: bool = True,
        backend: str = "auto",
        checkpoint_every: int | None = None,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        if not check_bool(batch_first=batch_first):
            raise ArgumentError(
                "batch_first=False: sequences are (B, T, I) here, as dt, mask and lengths go with "
                "them. Leave it out, and write y, h = rnn(x.transpose(0, 1)) and y.transpose(0, 1)."
            )
        if not isinstance(cell, AbstractCell):
            raise ArgumentError(
                f"cell must be an AbstractCell, got {type(cell).__name__}. Build one, e.g. "
                "tauflow.cells.LTCCell(input_size, hidden_size), or use tauflow.LTC directly."
            )
        self.num_layers = check_at_least(1, num_layers=num_layers)
        self.bidirectional = check_bool(bidirectional=bidirectional)
        self.dropout = check_within(0.0, 1.0, dropout=dropout)
        if dropout and num_layers == 1:
            raise ArgumentError(
                f"dropout={dropout} acts between layers, and num_layers=1 has none between. Add "
                "layers, or put torch.nn.Dropout behind the module."
            )
        self.proj_size = check_at_least(0, proj_size=proj_size)
        self.return_sequences = check_bool(return_sequences=return_sequences)
        self.backend = check_one_of(BACKENDS, backend=backend)
        if checkpoint_every is not None:
            check_at_least(1, checkpoint_every=checkpoint_every)
        self.checkpoint_every = checkpoint_every
        self._chunk_history: dict[int, ChunkHistory] = {}
        self._call_plans = CallPlans()
        width = self.proj_size or cell.output_size
        self.input_size = cell.input_size
        self.output_size = width * self.num_directions
        self.cells = nn.ModuleList([cell])
        while len(self.cells) < num_layers * self.num_directions:
            below = self.input_size if len(self.cells) < self.num_directions else self.output_size
            self.cells.append(cell.with_input_size(below))
        self.projections = nn.ModuleList(
            nn.Linear(cell.output_size, proj_size, bias=False) for _ in self.cells if proj_size
        )
        like = next(cell.parameters(), None)
        if like is not None:  # what was built here goes where the given cell is, in its dtype
            for part in (*self.cells[1:], *self.projections):
                part.to(device=like.device, dtype=like.dtype)
        fix_part(self.cells)
        fix_part(self.projections)

    @property
    def cell(self) -> AbstractCell:
        """The cell of the first layer, forward direction."""
        return self._cell(0)

    @property
    def num_directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def state_size(self) -> int:
        """Width of the state h, the states of all cells, layer by layer, forward first."""
        return sum(cell.state_size for cell in self.each_cell)

    @property
    def hidden_size(self) -> int:
        """Neurons of a layer, in one direction."""
        return self.cell.hidden_size

    @property
    def uses_observed(self) -> bool:
        """Whether it takes the (B, T, I) mask of measured features."""
        return self.cell.uses_observed

    def split_state(self, h: Tensor) -> list[dict[str, Tensor]]:
        """Return the named parts of each cell's state, layer by layer, forward first."""
        cells = self.each_cell
        return [c.split_state(h) for c, h in zip(cells, split_per_cell(cells, h), strict=True)]

    def to_torch_state(self, h: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return a state as ``torch.nn.LSTM`` and ``GRU`` give it, and as ``hx`` takes it.

        Args:
            h: final state of a call, (B, S) or (S,).

        Returns:
            Each part, (L D, B, N) with L layers and D directions, such as (h, c) of LSTM; of cells
            with one part, that tensor alone.

        Raises:
            ShapeError, ArgumentError: the state is of another module, or cannot be given so.
        """
        return to_torch_state(f"{type(self).__name__}.to_torch_state", self.each_cell, h)

    def forward(
        self,
        x: Tensor | PackedSequence | None = None,
        hx: State | None = None,
        *,
        dt: TimeSteps | None = None,
        t: PaddedOrPacked | None = None,
        mask: Tensor | None = None,
        lengths: Lengths | None = None,
        observed: PaddedOrPacked | None = None,
        episode_start: PaddedOrPacked | None = None,
        timespans: None = None,
        input: Tensor | PackedSequence | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the module.

        Args:
            x: inputs, (B, T, I), or (T, I) for a single sequence, or a PackedSequence; then the
                other arguments refer to the padded batch in its original order, or are packed too.
            hx: initial state, (B, S), or (S,) for a single sequence, or its parts in the format of
                ``torch.nn.LSTM`` (:meth:`to_torch_state`); by default the initial states of the
                cells.
            dt: time since the previous sample, in the unit of the cell's time constants: a number,
                (B, T) or (B, T, 1). Without ``dt`` and ``t`` it is 1 at every step, including the
                first. The state evolves over ``dt[:, k]`` with input ``x[:, k]``. The entry of a
                masked step is ignored; the next one counts from the last valid sample.
            t: absolute times of the samples, (B, T), instead of ``dt``; integers keep all digits.
                The first time step is 0, so times 0, 1, 2, ... differ from no times at all. With
                ``hx``, (B, T + 1): the time of the sample that ``hx`` belongs to comes first.
            mask: (B, T) bool; where false, state and output stay those of the previous step.
            lengths: number of valid steps of each sequence, (B,), for padding at the end.
            observed: (B, T, I) bool, which features were measured, for cells that model it; by
                default those that are not NaN.
            episode_start: (B, T) bool, for several episodes in a batch: where true, the state is
                reset to the initial state of the cells before the step, and then evolves over its
                ``dt``. At a masked step the reset is delayed until the next valid one. Episodes are
                computed in parallel. Not with ``t``.
            timespans: name of ``dt`` in ``ncps``; raises an error.
            input: name of ``x`` in ``torch.nn``, accepted in its place.

        Returns:
            The outputs, (B, T, H), or (B, H) at the last valid step without ``return_sequences``,
            in the format of the input; and the final state (B, S), to pass on as ``hx``.

        Raises:
            ShapeError, DtypeError, ArgumentError: an argument is invalid.
            TimeError: time steps are negative or not finite, or the dtype of ``t`` is too coarse
                for them, as float32 is for seconds since 1970. Checked on the CPU only, because on
                an accelerator the check would make the host wait for the device.
            NonFiniteError: a state overflowed in a time step that is too long for the explicit
                solver (see :meth:`AbstractCell.max_stable_dt`), or ``x`` has NaN and the cell does
                not model missing features. Checked on the CPU only, too.
            BackendError: the requested backend cannot serve the call.
        """
        where = f"{type(self).__name__}.forward"
        x = x if input is None else resolve_alias(where, "x", x, "input", input)
        if timespans is not None:
            check_argument_aliases(where, ["timespans"])
        return run_call(
            self,
            where,
            x,
            hx,
            dt=dt,
            t=t,
            mask=mask,
            lengths=lengths,
            observed=observed,
            episode_start=episode_start,
        )

    def _unroll(self, index: int, call: KernelCall) -> tuple[Tensor, Tensor]:
        """Run a cell by its index, one step after the other."""
        return unroll(call, self.backend, checkpoint_every=self.checkpoint_every)

    def initial_state(self, batch_size: int = 1) -> Tensor:
        """Return the state that sequences start from, (B, S).

        Args:
            batch_size: B.

        Raises:
            ArgumentError: a cell derives its initial state from the first sample.
        """
        where = f"{type(self).__name__}.initial_state"
        return initial_states(where, self.each_cell, check_at_least(1, batch_size=batch_size))

    def step(
        self,
        x: Tensor,
        h: State | None = None,
        dt: Tensor | float = 1.0,
        *,
        observed: Tensor | None = None,
        episode_start: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Advance by one sample, with gradients; :meth:`stream` is faster without them.

        Args:
            x: a sample of each sequence, (B, I), or (I,).
            h: state before it, (B, S) or (S,), or its parts; by default the initial one.
            dt: time since the sample before, a number or (B,).
            observed: (B, I) or (I,) bool, which features were measured.
            episode_start: (B,) or () bool, sequences that start again, from :meth:`initial_state`.

        Returns:
            The outputs, (B, H) or (H,), and the state, (B, S) or (S,).

        Raises:
            ArgumentError: the module is bidirectional, or see :meth:`initial_state`.
            ShapeError, DtypeError, TimeError: an argument does not fit.
        """
        return run_single_step(self, x, h, dt, observed, episode_start)

    def parallel_report(self) -> list[ParallelReport]:
        """Return how the last run in parallel chunks went, cell by cell as in :attr:`cells`."""
        return [
            memory.report for memory in self._chunk_history.values() if memory.report is not None
        ]

    def stream(self, batch_size: int = 1) -> Stream:
        """Return a stream: the module one sample at a time, with packed parameters.

        Args:
            batch_size: sequences that run side by side.

        Raises:
            StreamError: the module is bidirectional, or not on the CPU.
        """
        return Stream(self, batch_size)

    def extra_repr(self) -> str:
        """Show the layers' arguments that differ from their defaults; cells show their own."""
        defaults = inspect.signature(SequenceModule.__init__).parameters
        shown = {name: self.options[name] for name in layer_option_names() if name in self.options}
        return ", ".join(f"{k}={v!r}" for k, v in shown.items() if v != defaults[k].default)

    @property
    def each_cell(self) -> list[AbstractCell]:
        """The cells, layer by layer, forward first."""
        return [self._cell(i) for i in range(self.num_layers * self.num_directions)]

    def _cell(self, index: int) -> AbstractCell:
        cells = cast(nn.ModuleList, self._modules["cells"])  # past look-ups of some microseconds
        cell = cells._modules[str(index)]
        assert isinstance(cell, AbstractCell)
        return cell


def layer_option_names() -> list[str]:
    """Return the names of the arguments that every sequence module takes besides its cell's."""
    return list(inspect.signature(SequenceModule.__init__).parameters)[2:]
