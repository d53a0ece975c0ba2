"""A sequence module one sample at a time, for control loops."""

import math
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
import torch
from torch import Tensor, nn

from tauflow._internal.checks import (
    check_at_least,
    check_bool_tensor,
    missing_features_error,
    shape_error,
)
from tauflow.cells.contract_checks import call_initial_state
from tauflow.errors import ArgumentError, DtypeError, NonFiniteError, StreamError, TimeError
from tauflow.kernels import StepEngine, make_step_engine
from tauflow.kernels.cpu.binding import NULL_PAGE, check_memory

from .parameter_watch import ParameterWatch
from .parts import Array, StreamedModel, StreamParts, check_parts, pack_linear

if TYPE_CHECKING:
    from tauflow.sequence.sequence_module import SequenceModule

Dt = float | Tensor | Array
Features = Tensor | Array | None

_SUPPORTED_DTYPES = {
    torch.float16: np.float16,
    torch.float32: np.float32,
    torch.float64: np.float64,
}


class Stream:
    """States of B sequences that are advanced sample by sample, with packed parameters.

    Made by :meth:`~tauflow.sequence.sequence_module.SequenceModule.stream` and
    :meth:`SequenceModel.stream <tauflow.SequenceModel.stream>`. Step by step it gives what the
    module gives for the sequence so far. Nothing is recorded for gradients.

    Parameters are packed once. A change of one (an optimiser's step, ``load_state_dict``, another
    tensor or part in its place, such as ``model.head = ...``, ``train()`` of what drops units) is
    noticed by the next :meth:`step`, which raises; :meth:`refresh` packs again. A change through
    ``.data``, of a tensor made in inference mode, or of an option of a layer leaves no trace and is
    not noticed.

    Args:
        module: what to run, in one direction, on the CPU: a sequence module; or a model of one,
            which says by its method ``stream_parts`` what stands before and after it.
        batch_size: sequences B.
        preprocessor: of a sequence module, a module that turns each sample into its input, (B, I).
        postprocessor: of a sequence module, a module that turns outputs, (B, H), into what a step
            returns.

    Raises:
        StreamError: the module cannot run sample by sample.
        ArgumentError: a model was given with ``preprocessor`` or ``postprocessor``, which it has
            itself.
    """

    module: "SequenceModule"

    def __init__(
        self,
        module: "SequenceModule | StreamedModel",
        batch_size: int = 1,
        *,
        preprocessor: nn.Module | None = None,
        postprocessor: nn.Module | None = None,
    ) -> None:
        self.batch_size = check_at_least(1, batch_size=batch_size)
        self._source, self._outer_modules = module, (preprocessor, postprocessor)
        self._engines: list[StepEngine] = []
        self._has_started = False
        self.refresh()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy, and pickle, as a stream of the module's present parameters in the same state."""
        state = self.state if self._has_started else None
        return _restore_stream, (self._source, self.batch_size, *self._outer_modules, state)

    @torch.no_grad()
    def refresh(self) -> None:
        """Pack the present parameters of the module, or of a model's present parts.

        The states stay; in another dtype, if the parameters have another one now.

        Raises:
            StreamError: the module can no longer run sample by sample, or its state has another
                size than the present states. The stream is as before.
        """
        parts = self._read_parts()
        check_parts(self._source, parts)
        module, every = parts.module, parts.to_module_list()
        check_memory(*every.parameters(), *every.buffers())
        dtype = next(module.parameters(), torch.empty(0)).dtype
        if dtype not in _SUPPORTED_DTYPES:
            raise StreamError(
                f"a stream works on NumPy arrays, which have no {dtype}. Convert the module with "
                ".to(torch.float32); float16 and float64 are served too."
            )
        engines = [
            make_step_engine(cell, self.batch_size, module.backend) for cell in module.each_cell
        ]
        if self._has_started:
            _transfer_states(self._engines, engines, dtype)
        self._engines, self._dtype = engines, np.dtype(_SUPPORTED_DTYPES[dtype])
        self.module, self._preprocessor, after = parts
        self._projections = [pack_linear(part) for part in module.projections]
        self._postprocessor = None if after is None else pack_linear(after)
        self._parameter_watch = ParameterWatch(
            (every if self._source is module else self._source).modules()
        )
        self._single = (module.input_size,)
        self._shape = (self.batch_size, module.input_size)
        self._x = np.zeros(self._shape, self._dtype)
        self._gaps = np.ones(self.batch_size, self._dtype)
        self._longest = torch.finfo(dtype).max
        alone = len(engines) == 1 and not self._projections and after is None
        looks = getattr(engines[0], "step_finite", None)  # at inputs and outputs itself
        self._finite_step = looks if alone and not module.uses_observed else None

    @overload
    def step(self, x: Tensor, dt: Dt = 1.0, *, observed: Features = None) -> Tensor: ...
    @overload
    def step(self, x: Array, dt: Dt = 1.0, *, observed: Features = None) -> Array: ...
    def step(self, x: Tensor | Array, dt: Dt = 1.0, *, observed: Features = None) -> Tensor | Array:
        """Advance all sequences by one sample and return what the module emits.

        Args:
            x: the samples, (B, I), or (I,) for B = 1; a NumPy array or a tensor of the module's
                dtype.
            dt: time since the sample before, in the unit of the cell's time constants: a number,
                or (B,).
            observed: which features were measured, like ``x``, for cells that model that; by
                default those that are not NaN.

        Returns:
            (B, H), or (H,) if ``x`` had no batch axis; an array for an array, else a tensor.

        Raises:
            ShapeError, DtypeError: ``x`` or ``dt`` does not fit.
            TimeError: a time step is negative or not finite.
            NonFiniteError: ``x`` is not finite, and the cell does not take NaN for missing, or
                ``observed`` says that it was measured: the states are as before. Or the output is
                not, as after a time step that solver steps cannot follow: :meth:`reset` the stream,
                or give it an earlier :attr:`state`.
            StreamError: a parameter has changed since it was packed.
        """
        if self._parameter_watch.is_stale():
            raise StreamError(
                "a parameter, part or hook of the module has changed since the stream packed it, "
                "or train() or eval() was called on one that drops units. Call "
                "stream.refresh() to go on with what there is now and the present states."
            )
        values = _to_array(x) if isinstance(x, Tensor) else x
        if self._preprocessor is not None:
            values = self._preprocess(values)
        if values.__class__ is not np.ndarray or values.dtype != self._dtype:
            raise self._dtype_error(x)
        if values.shape != self._shape and (values.shape != self._single or self.batch_size != 1):
            expected = f"{self._shape}" + (f" or {self._single}" if self.batch_size == 1 else "")
            raise shape_error("Stream.step", "x", x, expected, "One sample per sequence.")
        self._x[...] = values  # whose memory may be strided or read-only
        if self._finite_step is not None and observed is None and self._has_started:
            bad, y = self._finite_step(self._x, self._to_dt(dt))
            if bad:
                self._raise_non_finite(dt)
            y = y.copy() if values.ndim == 2 else y[0].copy()
            return torch.from_numpy(y) if isinstance(x, Tensor) else y
        if observed is not None:
            seen: tuple[Array, ...] = (self._check_observed(observed),)
        else:
            seen = () if _is_finite(self._x) else self._infer_observed()
        y = self._advance(self._to_dt(dt), *seen)
        y = y.copy()  # the engine's own memory, which the next step overwrites
        if not _is_finite(y):
            raise self._non_finite_output_error(dt)
        y = y if values.ndim == 2 else y[0]
        return torch.from_numpy(y) if isinstance(x, Tensor) else y

    def reset(self, h: Tensor | Array | None = None, *, rows: Tensor | Array | None = None) -> None:
        """Start again, from the state ``h`` (B, S) or from the cells' own initial states.

        Args:
            h: the state.
            rows: (B,) bool, which sequences start again; all by default.

        Raises:
            ShapeError, DtypeError: ``h`` or ``rows`` does not fit.
            ArgumentError: some rows only, of a cell that derives its initial state from the first
                sample.
        """
        check_memory(rows)
        if rows is None:
            if h is None:
                self._has_started = False
            else:
                self.state = self._check_state(h)
            return
        chosen = check_bool_tensor("Stream.reset", rows=torch.as_tensor(rows))
        if tuple(chosen.shape) != (self.batch_size,):
            raise shape_error("Stream.reset", "rows", chosen, f"({self.batch_size},)", "One each.")
        if h is None and not self._has_started:
            return
        if h is not None:
            h = self._check_state(h)  # all of it, though it is read in the chosen rows only
        if not bool(chosen.any()):
            return
        with torch.no_grad():
            new = self.module.initial_state(self.batch_size) if h is None else h
            if bool(chosen.all()):
                self.state = new
                return
            old = self.state if self._has_started else self.module.initial_state(self.batch_size)
        self.state = torch.where(chosen.unsqueeze(1), new, old)

    @property
    def state(self) -> Tensor:
        """The states, (B, S), as the module returns and takes them; a copy.

        Before the first step after a reset they are the cells' initial states, which some cells
        derive from that step's input: they are then not known yet.
        """
        if not self._has_started:
            raise StreamError(
                "the stream has not begun, so that it has no state yet. Call step first, or give "
                "it one with reset(h)."
            )
        return torch.cat([engine.state for engine in self._engines], dim=1)

    @state.setter
    def state(self, h: Tensor) -> None:
        h = self._check_state(h)
        sizes = [engine.state.shape[1] for engine in self._engines]
        for engine, part in zip(self._engines, h.detach().split(sizes, dim=1), strict=True):
            engine.state = part.clone()
        self._has_started = True

    def _check_state(self, h: Tensor | Array) -> Tensor:
        """Return h as a tensor; raise unless it is (B, S), in the dtype of the module."""
        h = torch.from_numpy(h) if isinstance(h, np.ndarray) else h
        check_memory(h)
        expected = (self.batch_size, self.module.state_size)
        if not isinstance(h, Tensor) or str(h.dtype) != f"torch.{self._dtype}":
            kind = h.dtype if isinstance(h, Tensor) else type(h).__name__
            raise DtypeError(f"Stream: the state must be a torch.{self._dtype} tensor, got {kind}.")
        if tuple(h.shape) != expected:
            raise shape_error("Stream", "h", h, str(expected), "Pass on the h of a call.")
        return h

    def _read_parts(self) -> StreamParts:
        read = getattr(self._source, "stream_parts", None)
        if read is None:
            return StreamParts(self._source, *self._outer_modules)  # type: ignore[arg-type]
        if self._outer_modules != (None, None):
            raise ArgumentError(
                f"Stream: {type(self._source).__name__} says itself what stands before and after "
                "its sequence module. Leave preprocessor and postprocessor out."
            )
        parts: StreamParts = read()
        return parts

    def _advance(self, dt: Array, *observed: Array) -> Array:
        y = self._x
        for i, engine in enumerate(self._engines):
            if not self._has_started:
                engine.state = self._initial_state(i, y)
            y = engine(y, dt) if i else engine(y, dt, *observed)
            if self._projections:
                y = self._projections[i](y)
        self._has_started = True
        return y if self._postprocessor is None else self._postprocessor(y)

    @torch.no_grad()
    def _preprocess(self, x: Array) -> Array:
        assert self._preprocessor is not None
        made: Array = self._preprocessor(torch.from_numpy(np.atleast_2d(x))).numpy()
        return made if x.ndim > 1 else made[0]

    @torch.no_grad()
    def _initial_state(self, index: int, x: Array) -> Tensor:
        cell: Any = self.module.cells[index]
        start = call_initial_state(cell, torch.from_numpy(x.copy()))
        return start.detach()  # a view of a parameter has a gradient here too

    def _to_dt(self, dt: Dt) -> Array:
        """Return time steps as (B,) in the stream's own memory."""
        gaps = self._gaps
        if dt.__class__ is not float and dt.__class__ is not int:
            steps = _to_array(dt)
            if steps.shape not in ((), (1,), gaps.shape) or steps.dtype.kind not in "fiu":
                raise ArgumentError(
                    f"Stream.step: dt must be a number or ({self.batch_size},) numbers, got shape "
                    f"{steps.shape} and dtype {steps.dtype}."
                )
            if steps.size > 1:
                if not ((steps >= 0).all() and (steps <= self._longest).all()):
                    raise self._invalid_dt_error(steps)
                gaps[...] = steps
                return gaps
            dt = steps.item()
        if not 0.0 <= dt <= self._longest:
            raise self._invalid_dt_error(dt)
        gaps.fill(dt)
        return gaps

    def _check_observed(self, observed: Tensor | Array) -> Array:
        cell = self.module.cell
        if not cell.uses_observed:
            raise missing_features_error("Stream.step", cell)
        observed_array = _to_array(observed)
        alone = observed_array.shape == self._single and self.batch_size == 1
        if observed_array.dtype != np.bool_ or (observed_array.shape != self._shape and not alone):
            expected = f"bool, that of x, {self._shape}"
            raise shape_error("Stream.step", "observed", observed, expected, "One per feature.")
        observed_array = observed_array.reshape(self._shape)
        if not _is_finite(self._x) and bool((bad := observed_array & ~np.isfinite(self._x)).any()):
            raise self._non_finite_input_error(
                bad,
                "observed says that it was measured",
                "mark it as not measured, or leave observed out, which takes NaN for missing.",
            )
        self._x[~np.isfinite(self._x)] = 0.0
        return observed_array

    def _infer_observed(self) -> tuple[Array]:
        """Return which features of a sample were measured; NaN of the others become 0."""
        cell, missing = self.module.cell, np.isnan(self._x)
        if not cell.uses_observed or bool(np.isinf(self._x).any()):
            raise self._non_finite_input_error(
                ~np.isfinite(self._x),
                f"{type(cell).__name__} takes no such value",
                "leave the sample out and add its dt to the next one's, fill it in, or choose a "
                "model that takes NaN for missing, such as tauflow.GRUD.",
            )
        self._x[missing] = 0.0
        return (~missing,)

    def _non_finite_input_error(self, bad: Array, why: str, advice: str) -> NonFiniteError:
        row, feature = np.argwhere(bad)[0]
        return NonFiniteError(
            f"Stream.step: x is {self._x[row, feature]} in sequence {row}, feature {feature}, and "
            f"{why}. The states are as before: {advice}"
        )

    def _non_finite_output_error(self, dt: Dt) -> NonFiniteError:
        limit = min(cell.max_stable_dt() for cell in self.module.each_cell)
        stable = f" Solver steps are stable up to dt = {limit:.3g}." if limit < math.inf else ""
        return NonFiniteError(
            f"Stream.step: the output is not finite after a time step of {dt}.{stable} Call "
            "reset(), or give the stream the state that it had before."
        )

    def _raise_non_finite(self, dt: Dt) -> NoReturn:
        """Say what is not finite: an input, or else the output."""
        if not _is_finite(self._x):
            self._infer_observed()
        raise self._non_finite_output_error(dt)

    def _invalid_dt_error(self, dt: object) -> TimeError:
        return TimeError(
            f"Stream.step: dt must be finite in {self._dtype} and not negative, got {dt}."
        )

    def _dtype_error(self, x: object) -> DtypeError:
        kind = getattr(x, "dtype", None) or type(x).__name__
        return DtypeError(
            f"Stream.step: x must be a NumPy array or tensor of {self._dtype}, as the module's "
            f"parameters are, got {kind}. Convert it, or the module with .to()."
        )


def _to_array(values: Any) -> Array:
    if not isinstance(values, Tensor):
        return np.asarray(values)
    if values.data_ptr() < NULL_PAGE:
        check_memory(values)
    array: Array = values.detach().numpy()
    return array


def _is_finite(values: Array) -> bool:
    # The sum of squares shows it in half the time, unless it is itself too large.
    return bool(np.vdot(values, values) < math.inf) or bool(np.isfinite(values).all())


def _transfer_states(old: list[StepEngine], new: list[StepEngine], dtype: torch.dtype) -> None:
    """Give new engines the states of the old ones, or raise if they do not fit."""
    states = [engine.state for engine in old]
    widths, wanted = ([engine.state.shape[1] for engine in engines] for engines in (old, new))
    if widths != wanted:
        raise StreamError(
            f"Stream.refresh: the cells now have states of widths {wanted}, but the present states "
            f"have {widths}. Call stream.reset() before refresh() to start again, or make a new "
            "stream."
        )
    for engine, state in zip(new, states, strict=True):
        engine.state = state.to(dtype)


def _restore_stream(
    module: "SequenceModule | StreamedModel",
    batch_size: int,
    preprocessor: nn.Module | None,
    postprocessor: nn.Module | None,
    h: Tensor | None,
) -> Stream:
    stream = Stream(module, batch_size, preprocessor=preprocessor, postprocessor=postprocessor)
    stream.reset(h)
    return stream
