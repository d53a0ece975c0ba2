"""How long networks remember, against linear maps and exponents known by heart."""

import math
from dataclasses import replace

import pytest
import torch
from known_systems import LinearCell
from torch import Tensor, nn

import tauflow
from tauflow.analysis import lyapunov_exponents, memory_length
from tauflow.batch import SequenceBatch
from tauflow.compat import ncps
from tauflow.errors import ArgumentError, DtypeError
from tauflow.models import WHOLE_MODELS, SequenceModel
from tauflow.sequence import SequenceModule


def _data(B: int, T: int, dt: float = 1.0) -> SequenceBatch:
    torch.manual_seed(0)
    x = torch.randn(B, T, 2, dtype=torch.float64)
    return SequenceBatch(x, x[:, 0], dt=torch.full((B, T), dt, dtype=torch.float64))


@pytest.mark.parametrize("dt", [1.0, 0.25])
def test_a_linear_map_forgets_at_the_rate_of_its_slowest_mode(dt: float) -> None:
    rnn = tauflow.RNN(LinearCell(2, 2, (-0.5, -2.0)))
    memory = memory_length(rnn, _data(3, 400, dt=dt), tolerance=1e-6)
    assert memory.steps is not None
    assert memory.time == pytest.approx(memory.steps * dt)
    expected = math.log(1e6) / 0.5
    assert expected * 0.9 < memory.time < expected * 1.15  # looked at every sixteenth of the way
    assert memory.rate == pytest.approx(-0.5 * dt, rel=0.05)
    assert "samples" in str(memory)
    assert str(memory).endswith("a sample)")


def test_an_integrator_never_forgets() -> None:
    memory = memory_length(tauflow.RNN(LinearCell(2, 2, (0.0, -1.0))), _data(2, 100))
    assert memory.steps is None
    assert memory.time is None
    assert memory.rate == pytest.approx(0.0, abs=0.02)
    assert "longer than 100 samples" in str(memory)
    assert str(memory).endswith("a sample)")


def test_the_rate_is_the_largest_exponent_of_a_nonlinear_network() -> None:
    torch.manual_seed(1)
    rnn = tauflow.LTC(2, 6).double()
    data = _data(1, 400, dt=0.7)
    exponents = lyapunov_exponents(rnn, data.x[0], dt=data.dt[0] if data.dt is not None else None)
    memory = memory_length(rnn, _data(4, 400, dt=0.7))
    assert (exponents.diff() <= 0).all()
    assert memory.rate / 0.7 == pytest.approx(float(exponents[0]), rel=0.15)


def test_masks_layers_heads_and_missing_features() -> None:
    data = _data(3, 120)
    mask = torch.ones(3, 120, dtype=torch.bool)
    mask[:, 60:] = False
    padded = SequenceBatch(data.x, data.y, dt=data.dt, mask=mask)
    slow = tauflow.RNN(LinearCell(2, 2, (-0.01, -2.0)))
    assert memory_length(slow, padded).rate == pytest.approx(-0.01, abs=0.004)
    model = SequenceModel(tauflow.LTC(2, 4, num_layers=2), 3).double()
    assert memory_length(model, data).steps is not None
    observed = torch.rand(3, 120, 2) < 0.5
    missing = SequenceBatch(data.x, data.y, dt=data.dt, observed=observed)
    assert memory_length(tauflow.GRUD(2, 4).double(), missing).steps is not None


def test_padding_and_holes_are_no_samples() -> None:
    rnn = tauflow.RNN(LinearCell(2, 2, (-0.2, -2.0)))
    data = _data(3, 200, dt=0.5)
    assert data.dt is not None
    memory = memory_length(rnn, data)
    B, T = data.dt.shape
    x, dt = torch.zeros(B, 2 * T + 7, 2, dtype=torch.float64), torch.zeros(B, 2 * T + 7)
    mask = torch.zeros(B, 2 * T + 7, dtype=torch.bool)
    seen = slice(1, 2 * T, 2)  # every other step is a hole, and seven are padding
    x[:, seen], dt[:, seen], mask[:, seen] = data.x, data.dt.float(), True
    holes = memory_length(rnn, SequenceBatch(x, data.y, dt=dt.double(), mask=mask))
    assert (holes.steps, holes.time, holes.after) == (memory.steps, memory.time, memory.after)
    assert holes.rate == pytest.approx(memory.rate)
    torch.testing.assert_close(holes.differences, memory.differences)


def test_a_sequence_that_ends_too_early_to_tell_does_not_count() -> None:
    rnn = tauflow.RNN(LinearCell(2, 2, (-0.2, -2.0)))
    data = _data(3, 200)
    alone = memory_length(rnn, data[:2])
    mask = torch.ones(3, 200, dtype=torch.bool)
    mask[2, 10:] = False
    ragged = memory_length(rnn, SequenceBatch(data.x, data.y, dt=data.dt, mask=mask))
    assert alone.steps is not None
    assert ragged.steps is not None
    assert abs(ragged.steps - alone.steps) <= 0.15 * alone.steps  # from other starts
    assert ragged.samples == 200
    short = memory_length(rnn, _data(3, 10))
    assert short.steps is None
    assert "longer than 10 samples" in str(short)
    mask[:] = False
    mask[:, :10] = True
    padded = memory_length(rnn, SequenceBatch(data.x, data.y, dt=data.dt, mask=mask))
    assert (padded.steps, padded.samples) == (None, 10)
    with pytest.raises(ArgumentError, match="masked"):
        memory_length(rnn, SequenceBatch(data.x, data.y, mask=torch.zeros_like(mask)))


class Calling(nn.Module):
    """Calls its network in one of the ways that sequence modules allow."""

    def __init__(self, rnn: nn.Module, how: str) -> None:
        super().__init__()
        self.rnn, self.how = rnn, how

    def forward(self, x: Tensor, *, dt: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        ways = {
            "gaps": {"x": x, "dt": dt.unsqueeze(-1), "mask": mask},
            "times": {"x": x, "t": dt.cumsum(1), "mask": mask},
            "lengths": {"x": x, "dt": dt, "lengths": mask.sum(1)},
            "episodes": {"x": x, "dt": dt, "mask": mask, "episode_start": dt == 0},
        }
        y, h = self.rnn(**ways[self.how])
        return y, h


@pytest.mark.parametrize("how", ["times", "lengths"])
def test_a_network_may_be_called_in_any_way(how: str) -> None:
    data = _data(3, 200, dt=0.05)
    assert data.dt is not None
    data.dt[:, 0] = 0.0  # as times have it
    mask = torch.arange(200) < torch.tensor([[200], [150], [180]])
    batch = SequenceBatch(data.x, data.y, dt=data.dt, mask=mask)
    rnn = tauflow.RNN(LinearCell(2, 2, (-3.0, -6.0)))
    memory = memory_length(Calling(rnn, "gaps"), batch)
    other = memory_length(Calling(rnn, how), batch)
    assert memory.steps == other.steps is not None
    assert memory.time == pytest.approx(other.time)
    torch.testing.assert_close(memory.differences, other.differences)


def test_an_episode_that_begins_forgets_the_one_before() -> None:
    data = _data(3, 40)
    assert data.dt is not None
    mask = torch.ones(3, 40, dtype=torch.bool)
    mask[0, 20:23] = False  # the episode begins after them
    data.dt[:, 20] = 0.0
    batch = SequenceBatch(data.x, data.y, dt=data.dt, mask=mask)
    rnn = tauflow.RNN(LinearCell(2, 2, (0.0, -0.001)))
    assert memory_length(Calling(rnn, "gaps"), batch).steps is None
    assert memory_length(Calling(rnn, "episodes"), batch).steps == 21


def test_what_has_no_state_to_forget_is_refused() -> None:
    data = _data(2, 5)
    with pytest.raises(ArgumentError, match="expected a sequence module"):
        memory_length(nn.Linear(2, 2), data)
    with pytest.raises(ArgumentError, match="bidirectional"):
        memory_length(tauflow.LTC(2, 3, bidirectional=True), data)
    with pytest.raises(ArgumentError, match="no sequence"):
        memory_length(tauflow.LTC(2, 3), data[:0])
    with pytest.raises(DtypeError, match=r"data must be a tauflow\.SequenceBatch, got Tensor"):
        memory_length(tauflow.LTC(2, 3), data.x)
    with pytest.raises(ArgumentError, match="max_sequences must be at least 1"):
        memory_length(tauflow.LTC(2, 3), data, max_sequences=0)
    with pytest.raises(ArgumentError, match=r"CfC takes no dt=\. Pass the CfC inside of it"):
        memory_length(ncps.torch.CfC(2, 3), data)


def test_a_memory_is_as_long_in_any_unit_of_time() -> None:
    torch.manual_seed(0)
    rnn = tauflow.GRUD(2, 6)
    B, T = 8, 120
    dt = torch.rand(B, T) + 0.5
    data = SequenceBatch(torch.randn(B, T, 2), torch.zeros(B, 1), dt=dt)
    data = replace(data, observed=torch.rand(B, T, 2) < 0.5)
    memory = memory_length(rnn, data)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.rpartition(".")[2] in ("w_x", "W_delta"):
                parameter.div_(1024.0)
    other = memory_length(rnn, replace(data, dt=1024.0 * dt))
    assert other.steps == memory.steps
    assert other.rate == pytest.approx(memory.rate, rel=1e-3)
    assert other.time == pytest.approx(1024.0 * memory.time)


class Given(nn.Module):
    """Passes its state to its network, or no state."""

    def __init__(self, rnn: nn.Module, h: Tensor | None = None) -> None:
        super().__init__()
        self.rnn, self.h = rnn, h

    def forward(self, x: Tensor, *, dt: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x, self.h, dt=dt, mask=mask)
        return y, h


def _first_states(rnn: SequenceModule, x: Tensor) -> Tensor:
    """Return the states that layers derive from the first sample that each reads."""
    starts = []
    for cell in rnn.each_cell:
        starts.append(cell.initial_state(x))
        x = cell.readout(cell.step(x, starts[-1], torch.ones_like(x[:, :1])))
    return torch.cat(starts, dim=1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("is_given", [True, False])
def test_sequences_start_where_the_model_starts_them(is_given: bool, layers: int) -> None:
    torch.manual_seed(0)
    rnn = tauflow.GNODE(2, 3, num_layers=layers, initial_state="affine").double()
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[1, :2] = mask[2, 7:] = False  # the first sample is not always the first step
    rows = [row[there] for row, there in zip(x, mask, strict=True)]
    h = None if is_given else torch.randn(3, rnn.state_size, dtype=torch.float64)
    data = SequenceBatch(x, x[:, 0], dt=torch.ones(3, 9, dtype=torch.float64), mask=mask)
    memory = memory_length(Given(rnn, h), data)
    assert memory.after == tuple(range(1, 10))
    with torch.no_grad():
        first = _first_states(rnn, torch.stack([row[0] for row in rows])) if h is None else h
        ends = torch.cat(
            [rnn(row[None], start[None])[1] for row, start in zip(rows, first, strict=True)]
        )
        other = ends.roll(1, 0)
        for number, row in enumerate(rows):
            before = (first[number] - other[number]).view(layers, -1).abs().amax(1)
            for k in range(1, len(row) + 1):
                a, b = (rnn(row[None, :k], s[None, number])[1] for s in (first, other))
                share = (a - b).view(layers, -1).abs().amax(1) / before
                torch.testing.assert_close(memory.differences[number, k - 1], share.max())


def test_of_two_stable_states_the_start_chooses() -> None:
    rnn = tauflow.GNODE(
        1,
        1,
        layers=1,
        gate_layers=0,
        final_activation="tanh",
        initial_state="affine",
        substeps=10,
    )
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.zero_()
        rnn.cell.W_h.fill_(4.0)  # rests near 1 and -1
        rnn.cell.start.V.fill_(2.0)
        rnn.cell.start.a.fill_(-1.0)  # starts at 2 x - 1
    x = torch.zeros(4, 100, 1)
    x[:, 0, 0] = torch.tensor([1.0, 0.9, 0.8, 0.7])  # all above 0
    memory = memory_length(rnn, SequenceBatch(x, x))
    assert memory.steps is not None
    assert memory.steps < 20
    x[0, 0] = 0.1  # the others' ends are on its other side, and its own on theirs
    assert memory_length(rnn, SequenceBatch(x, x)).steps is None


class Resampling(nn.Module):
    """Hands other samples to its network than those of the data."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.rnn, self.how = tauflow.GRU(2, 3), how

    def forward(self, x: Tensor, *, dt: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.how == "every other":
            y, h = self.rnn(x[:, ::2], dt=dt[:, ::2] + dt[:, 1::2])
        elif self.how == "gaps of one":
            y, h = self.rnn(x)
        elif self.how == "twice":
            y, h = self.rnn(torch.cat([x, x]), dt=torch.cat([dt, dt]))
        else:
            y = h = x[:, 0]
        return y, h


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("every other", "gets 10 samples over 9 in time, where the data have 20 samples over 9.5"),
        ("gaps of one", "gets 20 samples over 19 in time, where the data have 20 samples over 9.5"),
        ("twice", "gets 6 sequences, where the data have 3"),
        ("not at all", "Resampling does not call its rnn"),
    ],
)
def test_samples_of_the_network_are_those_of_the_data(how: str, message: str) -> None:
    data = SequenceBatch(torch.randn(3, 20, 2), torch.zeros(3, 1), dt=torch.full((3, 20), 0.5))
    with pytest.raises(ArgumentError, match=message):
        memory_length(Resampling(how), data)
    plain = SequenceModel(tauflow.GRU(2, 3), 1)
    assert memory_length(plain, data).samples == 20


@pytest.mark.parametrize("name", ["ip-net", "mtan", "seft", "transformer"])
def test_reference_points_of_a_model_are_no_samples(name: str) -> None:
    data = SequenceBatch(torch.randn(3, 20, 2), torch.zeros(3, 1))
    network = WHOLE_MODELS[name].build(2, 8)
    for model in (network, SequenceModel(network, 1)):
        with pytest.raises(ArgumentError, match=f"{type(network).__name__} is no network with a"):
            memory_length(model, data)


def test_a_network_on_images_is_counted_in_images() -> None:
    torch.manual_seed(0)
    model = WHOLE_MODELS["convolutional"].build(
        (1, 8, 8), 3, cell="gru", features=2, layers=((2, 3, 2),)
    )
    x = torch.randn(2, 30, 1, 8, 8)
    assert memory_length(model, SequenceBatch(x, torch.zeros(2, 1))).samples == 30
