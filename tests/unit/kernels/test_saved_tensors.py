"""What the loops keep for the backward pass is theirs again, whatever hooks or graphs did."""

import pytest
import torch

import tauflow

B, T, D, N = 3, 12, 3, 5


def packed(tensor):
    """Keep values and shape, in another order, as torch.autograd.graph.save_on_cpu does."""
    return torch.empty(tensor.size(), dtype=tensor.dtype).copy_(tensor)


@pytest.mark.parametrize("hook", [packed, torch.clone])
@pytest.mark.parametrize(
    "name", ["gru", "lmu", "lem", "ct-gru", "exprnn", "gnode", "rnn-delta-t", "lrc", "ltc", "cfc"]
)
def test_gradients_do_not_depend_on_how_saved_tensors_lie(name, hook):
    torch.manual_seed(0)
    rnn = tauflow.build(name, D, N)
    x = torch.randn(B, T, D)
    leaves = list(rnn.parameters())

    def gradients():
        return torch.autograd.grad(rnn(x)[0].sin().sum(), leaves, allow_unused=True)

    plain = gradients()
    with torch.autograd.graph.saved_tensors_hooks(hook, lambda tensor: tensor):
        hooked = gradients()
    assert any(bool(pull.any()) for pull in plain if pull is not None)
    torch.testing.assert_close(hooked, plain, rtol=0, atol=0)


@pytest.mark.parametrize(
    "name",
    ["rnn-delta-t", "rnn-impute", "rnn-decay-rubanova", "gru-d-rubanova", "ode-rnn-rubanova"],
)
def test_truth_values_among_the_inputs_stay_so_in_a_second_backward_pass(name):
    torch.manual_seed(0)
    rnn = tauflow.build(name, D, N)
    x = torch.randn(B, T, D, requires_grad=True)
    observed = torch.rand(B, T, D) < 0.7

    def second(rnn, x):
        y, _ = rnn(x, observed=observed)
        (pull,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        return torch.autograd.grad(pull.square().sum(), x)[0]

    gradient = second(rnn, x)
    expected = second(rnn.double(), x.detach().double().requires_grad_())
    assert bool(expected.any())
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-3, atol=1e-4)
