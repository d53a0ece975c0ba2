"""What a step costs and keeps, and which steps can be run backwards: claims without training."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import tauflow


def count_flops(module: torch.nn.Module, inputs: torch.Tensor) -> int:
    """Return the floating point operations of the matrix products of a call."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(inputs)
    return counter.get_total_flops()


def count_step(name: str, neurons: int, **options: int) -> int:
    rnn = tauflow.build(name, 1, neurons, backend="reference", **options)
    return count_flops(rnn, torch.zeros(1, 1, 1))


def test_operations_of_one_step_in_neurons_and_solver_evaluations():
    """A dense recurrent matrix costs k^2; a CfC k times the units of its backbone."""
    power = {
        name: math.log2(count_step(name, 512, **options) / count_step(name, 256, **options))
        for name, options in (
            ("elman", {}),
            ("ode-rnn", {}),
            ("cfc", {"backbone_units": 128}),
        )
    }
    assert power == pytest.approx({"elman": 2.0, "ode-rnn": 2.0, "cfc": 1.0}, abs=0.1)
    growth = count_step("ode-rnn", 256, substeps=32) / count_step("ode-rnn", 256, substeps=16)
    assert growth == pytest.approx(2.0, abs=0.02)


def test_operations_of_a_transformer_for_one_more_sample():
    """One query over n keys, as with a cache of keys and values: n k beside projections of k^2."""

    class OneQuery(torch.nn.Module):
        def forward(self, keys: torch.Tensor) -> torch.Tensor:
            return torch.softmax(keys[:, -1:] @ keys.mT, -1) @ keys

    over_n = count_flops(OneQuery(), torch.zeros(1, 512, 64)) / count_flops(
        OneQuery(), torch.zeros(1, 256, 64)
    )
    over_k = count_flops(OneQuery(), torch.zeros(1, 256, 128)) / count_flops(
        OneQuery(), torch.zeros(1, 256, 64)
    )
    assert (over_n, over_k) == (2.0, 2.0)


def count_saved_bytes(name: str, neurons: int, **options: int) -> int:
    """Return the bytes of storage that one step keeps for its backward pass, parameters aside."""
    rnn = tauflow.build(name, 4, neurons, backend="reference", **options)
    parameters = {p.untyped_storage().data_ptr() for p in rnn.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y, _ = rnn(torch.randn(8, 1, 4))
    assert y.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


def test_an_ltc_keeps_a_number_for_every_synapse_and_others_for_every_neuron():
    """With as many solver steps: k^2 numbers a sample against k, tens of times as many."""
    saved = {
        (name, k): count_saved_bytes(name, k, **options)
        for name, options in (("ltc", {}), ("neural-ode", {"substeps": 6}), ("lstm", {}))
        for k in (32, 64)
    }
    power = {name: math.log2(saved[name, 64] / saved[name, 32]) for name, _ in saved}
    assert power["ltc"] > 1.8
    assert max(power["neural-ode"], power["lstm"]) < 1.4
    assert saved["ltc", 64] > 20 * max(saved["neural-ode", 64], saved["lstm", 64])


def test_a_step_of_a_cfc_takes_two_states_to_one_and_a_flow_does_not():
    """States of one neuron over a grid: the CfC's image turns back, that of an ODE increases."""
    torch.manual_seed(2)
    states = torch.linspace(-3, 3, 601, dtype=torch.float64).unsqueeze(-1)
    x, dt = torch.zeros(601, 1, 1, dtype=torch.float64), 1.0
    flow = tauflow.build("ode-rnn", 1, 1, substeps=100).double()
    assert (flow(x, states, dt=dt)[1].diff(dim=0) > 0).all()
    has_two = False
    for _ in range(20):
        cfc = tauflow.CfC(1, 1, backbone_units=8).double()
        after = cfc(x, states, dt=dt)[1].detach().flatten()
        peak = int(after.argmax())
        if 0 < peak < 600:
            level = (max(after[0], after[-1]) + after[peak]) / 2
            crossings = ((after - level).sign().diff() != 0).nonzero().flatten()
            has_two = len(crossings) >= 2
        if has_two:
            break
    assert has_two
