"""Lesions of neurons and displacements of states, against networks written out by hand."""

import numpy as np
import pytest
import torch

import tauflow
from tauflow.analysis import as_flow, find_fixed_points, lesion, perturb, visited_states
from tauflow.errors import ArgumentError, ShapeError

B, T, D, N = 3, 7, 2, 6
SILENT = [1, 4]


def sequences():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(B, T, D, generator=generator), torch.rand(B, T, generator=generator)


def build(name, **options):
    torch.manual_seed(0)
    return tauflow.build(name, D, N, **options)


def test_a_lesioned_neuron_is_one_without_synapses():
    rnn, pruned = build("elman"), build("elman")
    with torch.no_grad():
        for parameter in pruned.cell.parameters():
            parameter[SILENT] = 0.0
    x, _ = sequences()
    for ours, theirs in zip(lesion(rnn, SILENT)(x), pruned(x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["lstm", "cfc", "ode-lstm", "ct-rnn", "gru-d"])
@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_lesion_holds_its_neurons_at_every_step(name, value):
    rnn = build(name)
    model = tauflow.SequenceModel(rnn, 2)
    x, dt = sequences()
    parts = ["h"] if name == "gru-d" else None
    model(x, dt=dt)  # what a call prepares is no part of the copy
    silent = lesion(model, SILENT, value=value, parts=parts)
    y, last = silent(x, dt=dt)
    cell = rnn.cell
    held = [
        part * N + neuron
        for part in range(1 if parts else cell.state_size // N)
        for neuron in SILENT
    ]
    h = cell.initial_state(x[:, 0]).clone()
    for step in range(T):
        h[:, held] = value
        h = cell.step(x[:, step], h, dt[:, step : step + 1]).detach().clone()
    h[:, held] = value
    torch.testing.assert_close(last, h)
    torch.testing.assert_close(y[:, -1], model.head(cell.readout(h)))
    assert not torch.equal(model(x, dt=dt)[0], y)  # the model itself is as it was
    y.sum().backward()
    assert all(p.grad is None for p in model.parameters())


def test_lesions_of_an_upper_layer_leave_the_lower_one_alone():
    rnn = build("gru", num_layers=2)
    x, _ = sequences()
    intact, silent = (visited_states(r, x) for r in (rnn, lesion(rnn, 0, layer=1)))
    torch.testing.assert_close(silent[..., :N], intact[..., :N])
    assert silent[..., N].eq(0).all()
    assert intact[..., N].ne(0).all()


def test_neurons_are_silenced_one_after_the_other():
    rnn = build("lstm")
    x, _ = sequences()
    both = lesion(lesion(rnn, np.int64(SILENT[0])), SILENT[1:])
    torch.testing.assert_close(both(x), lesion(rnn, SILENT)(x), rtol=0, atol=0)
    torch.testing.assert_close(both(x), lesion(rnn, set(SILENT))(x), rtol=0, atol=0)
    with pytest.raises(ArgumentError, match="the state of GRUDCell has the parts"):
        lesion(lesion(build("gru-d"), 0, parts=["h"]), 1)


def test_a_neuron_silenced_again_is_held_at_the_later_value():
    rnn = build("gru")
    x, _ = sequences()
    again = lesion(lesion(lesion(rnn, 0, value=0.3), SILENT), SILENT, value=0.5)
    expected = lesion(lesion(rnn, SILENT, value=0.5), 0, value=0.3)
    torch.testing.assert_close(again(x), expected(x), rtol=0, atol=0)


def test_fixed_points_of_a_lesioned_flow_are_those_of_the_other_neurons():
    torch.manual_seed(0)
    rnn = tauflow.CTRNN(D, N)
    silent = lesion(rnn, SILENT)
    fixed_points = find_fixed_points(silent, torch.randn(50, N), accept="none")
    assert len(fixed_points) > 0
    assert fixed_points.points[:, SILENT].abs().max() < 1e-6
    velocity = as_flow(rnn).velocity(fixed_points.points)
    others = [neuron for neuron in range(N) if neuron not in SILENT]
    torch.testing.assert_close(velocity[:, others], torch.zeros_like(velocity[:, others]))


def test_neurons_that_are_not_there_are_refused():
    for neurons in ([], [N], [-1]):
        with pytest.raises(ArgumentError, match="has the neurons 0 to 5"):
            lesion(build("cfc"), neurons)
    with pytest.raises(ArgumentError, match="layer=1, but the module has 1"):
        lesion(build("cfc"), [0], layer=1)
    with pytest.raises(ArgumentError, match=r"Name those that do: parts=\('h',\)"):
        lesion(build("gru-d"), [0])
    with pytest.raises(ArgumentError, match="only those of width 6 can be held"):
        lesion(build("gru-d"), [0], parts=["x_last"])
    with pytest.raises(ArgumentError, match="one direction"):
        lesion(build("cfc", bidirectional=True), [0])
    with pytest.raises(ArgumentError, match="one direction"):
        lesion(torch.nn.Linear(2, 3), [0])


@pytest.mark.parametrize("at", [0, 3, T - 1])
@pytest.mark.parametrize("name", ["cfc", "lstm", "gru-d"])
def test_a_displacement_is_followed_from_there_on(name, at):
    rnn = build(name)
    x, dt = sequences()
    displacement = 0.1 * torch.randn(B, rnn.state_size)
    perturbed = perturb(tauflow.SequenceModel(rnn, 2), x, displacement, at=at, dt=dt)
    torch.testing.assert_close(perturbed.states, visited_states(rnn, x, dt=dt))
    torch.testing.assert_close(perturbed.perturbed[:, :at], perturbed.states[:, :at])
    h = perturbed.states[:, at] + displacement
    for step in range(at, T):
        if step > at:
            h = rnn.cell.step(x[:, step], h, dt[:, step : step + 1])
        torch.testing.assert_close(perturbed.perturbed[:, step], h)
    assert perturbed.distances.shape == (B, T - at)
    torch.testing.assert_close(perturbed.distances[:, 0], displacement.norm(dim=1))


def test_a_displacement_that_does_not_fit_is_refused():
    x, _ = sequences()
    with pytest.raises(ArgumentError, match="at=7, but the samples are 0 to 6"):
        perturb(build("cfc"), x, torch.ones(N), at=T)
    with pytest.raises(ShapeError, match=r"displacement has shape \(5,\)"):
        perturb(build("cfc"), x, torch.ones(5), at=0)


def test_a_network_that_is_none_is_refused_by_the_caller():
    with pytest.raises(ArgumentError, match=r"^perturb: expected a cell"):
        perturb(torch.nn.Linear(2, 2), torch.randn(1, 3, 2), torch.ones(2), at=1)
