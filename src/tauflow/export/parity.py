"""Compare an exported model with the model, on random irregular sequences."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tauflow._internal.sanitize import format_count
from tauflow.errors import ExportError
from tauflow.sequence import SequenceModule
from tauflow.sequence.inputs import first_sample

from .exportable_model import ExportableModel, ExportedStep

NamedInputs = dict[str, Tensor]
RunExported = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]
"""Takes inputs by name, and gives outputs and the last state."""

_MAX_DT = 30.0
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-10}
"""How far a file may be from its model, by default."""


@dataclass(frozen=True)
class Parity:
    """How far an exported model is from the one in Python.

    Args:
        max_difference: the largest difference, as a part of the largest number of that sequence
            where that is above 1; of outputs that are scaled inside, as they are before that.
        tolerance: what was allowed.
        sequences: how many random sequences were run.
        steps: their length.
    """

    max_difference: float
    tolerance: float
    sequences: int
    steps: int

    def __str__(self) -> str:
        return (
            f"at most {self.max_difference:.1e} from the model over "
            f"{format_count(self.sequences, 'irregular sequence')} of "
            f"{format_count(self.steps, 'step')} (tolerance {self.tolerance:.2g})"
        )


def check_parity(
    exported: ExportableModel,
    run: RunExported,
    *,
    sizes: tuple[int, int],
    mask: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> Parity:
    """Run random irregular sequences through the model and what was made of it.

    Args:
        exported: the model as it was exported.
        run: what was made of it; one step for an exported step.
        sizes: sequences and their length.
        mask: whether it takes a mask.
        tolerance: largest difference; by default 1e-5 in single precision, 1e-10 in double.
        seed: of the sequences.

    Raises:
        ExportError: the difference is larger.
    """
    inputs = sample_inputs(exported, sizes, seed=seed, mask=mask)
    expected = run_model(exported, inputs)
    with torch.no_grad():
        result = (
            run_step_by_step(run, inputs) if isinstance(exported, ExportedStep) else run(inputs)
        )
    if not exported.sequence_module.return_sequences and isinstance(exported, ExportedStep):
        result = (result[0][:, -1], result[1])
    (y, h), (expected_y, expected_h) = result, expected
    rounding: Tensor | float = 0.0
    if (scaling := exported.scaling) is not None:
        rounding = scaling.rounding_error(expected_y)
        y, expected_y = scaling.rescale_outputs(y), scaling.rescale_outputs(expected_y)
    worst = max(
        max_relative_difference(y, expected_y, rounding), max_relative_difference(h, expected_h)
    )
    allowed = TOLERANCES.get(exported.like.dtype, 1e-2) if tolerance is None else tolerance
    if not worst <= allowed:  # nor NaN
        raise ExportError(
            f"what was exported differs from the model by {worst:.1e}, more than {allowed:g}. "
            "Please report it with the model's options; a larger tolerance (--tolerance) lets it "
            "pass."
        )
    return Parity(worst, allowed, *sizes)


def sample_inputs(
    exported: ExportableModel,
    sizes: tuple[int, int],
    *,
    seed: int,
    mask: bool = False,
    spread: float = 1.0,
) -> NamedInputs:
    """Return irregular sequences (B, T, ...) by the names of the program's inputs.

    Time steps are exponential with mean 1; a tenth of them are 0, and a tenth up to thirty times as
    long, or half as long as the cells' solvers can follow, beyond which roundings die out slowly.
    Of inputs that are scaled inside a tenth is missing, NaN. ``spread`` is their deviation.
    """
    generator = torch.Generator().manual_seed(seed)
    dtype, body = exported.like.dtype, exported.sequence_module
    inputs = exported.make_example_inputs(*sizes, mask=mask)
    draw = torch.rand(*sizes, 2, generator=generator, dtype=torch.float64)
    gaps = -torch.log1p(-draw[..., 0])
    kind = draw[..., 1]
    gaps = torch.where(kind < 0.1, 0.0, torch.where(kind > 0.9, gaps * _MAX_DT, gaps))
    longest = min([math.inf, *(0.5 * cell.max_stable_dt() for cell in exported.cells)])
    if "dt" in inputs:
        inputs["dt"] = gaps.clamp(max=longest).to(dtype)
    if exported.embedding is not None:
        vocabulary: Any = exported.embedding.vocabulary
        inputs["x"] = torch.randint(vocabulary, inputs["x"].shape, generator=generator)
    else:
        x = torch.randn(*sizes, body.input_size, generator=generator, dtype=torch.float64)
        x = x * spread
        if exported.scaling is not None:
            x = exported.scaling.unscale_inputs(x)
            x = x.masked_fill(torch.rand(x.shape, generator=generator) < 0.1, math.nan)
        inputs["x"] = x.to(dtype)
    for name in ("observed", "mask"):
        if name in inputs:
            inputs[name] = torch.rand(inputs[name].shape, generator=generator) > 0.3
    inputs["h_in"] = get_initial_state(exported, inputs)
    return inputs


@torch.no_grad()
def get_initial_state(exported: ExportableModel, inputs: NamedInputs) -> Tensor:
    """Return the cells' own initial states, (B, S); of upper layers as for inputs of zeros."""
    x, _ = exported.embed_inputs(inputs["x"], inputs.get("dt"))
    first = first_sample(x, inputs.get("mask"))
    like = exported.like
    states = []
    for index, cell in enumerate(exported.cells):
        lowest = index < exported.sequence_module.num_directions
        below = first if lowest else like.new_zeros(len(first), cell.input_size)
        states.append(cell.initial_state(below))
    return torch.cat(states, dim=-1)


@torch.no_grad()
def run_model(
    exported: ExportableModel,
    inputs: NamedInputs,
    *,
    double: bool = False,
    every_step: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return what the model itself makes of the inputs.

    Scales that are inside what was exported are applied here in double precision in any case.

    Args:
        exported: the model as it was exported.
        inputs: by name.
        double: whether it computes in double precision.
        every_step: whether the outputs are those of every step, (B, T, O), in any case.
    """
    model, dtype, scaling = exported.model, exported.like.dtype, exported.scaling
    if double or every_step:
        model = copy.deepcopy(model)
        for part in model.modules():
            if isinstance(part, SequenceModule):
                part.return_sequences |= every_step
                if double:
                    part.backend = "reference"  # a kernel may know single alone
    if double:
        model, dtype = model.double(), torch.float64
        inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    x = inputs["x"] if scaling is None else scaling.scale_inputs_in_double(inputs["x"]).to(dtype)
    masks = {name: inputs[name] for name in ("mask", "observed") if name in inputs}
    y, h = model(x, inputs["h_in"], dt=inputs.get("dt", exported.fixed_dt), **masks)
    return y if scaling is None else scaling.unscale_outputs_in_double(y).to(dtype), h


def run_step_by_step(run: RunExported, inputs: NamedInputs) -> tuple[Tensor, Tensor]:
    """Return the outputs at every step, (B, T, O), and the last state of one step after another."""
    h, outputs = inputs["h_in"], []
    for step in range(inputs["x"].shape[1]):
        step_inputs = {name: v[:, step] for name, v in inputs.items() if name != "h_in"}
        y, h = run({**step_inputs, "h_in": h})
        outputs.append(y)
    return torch.stack(outputs, dim=1), h


def max_relative_difference(
    actual: Tensor, expected: Tensor, rounding: Tensor | float = 0.0
) -> float:
    """Return the largest difference, as a part of a sequence's largest number if above 1.

    Args:
        actual: numbers (B, ...).
        expected: what they should be.
        rounding: by how much they may differ without it counting, of their shape.
    """
    size = expected.abs().flatten(1).amax(1).clamp(min=1.0)
    difference = ((actual - expected).abs() - rounding).clamp(min=0.0)
    return float((difference.flatten(1).amax(1) / size).max())
