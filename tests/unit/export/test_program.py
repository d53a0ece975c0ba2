import pytest
import torch

import tauflow
from tauflow.cells import GNODECell, LTCCell
from tauflow.errors import ArgumentError, ExportError
from tauflow.export import program, program_step
from tauflow.export.exportable_model import ExportedSequence, ExportedStep
from tauflow.export.parity import check_parity, max_relative_difference
from tauflow.export.torch_program import trace
from tauflow.models import Ensemble, SequenceModel, Transformer


def operators(traced):
    return [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]


@pytest.fixture(scope="module")
def circuit():
    torch.manual_seed(0)
    rnn = tauflow.LTC(2, tauflow.AutoNCP(8, 2), substeps=3).eval()
    return rnn, program(rnn)


def held(exported, traced, **options):
    module = traced.module()
    return check_parity(exported, lambda inputs: module(**inputs), sizes=(4, 11), **options)


def test_the_length_is_free_and_the_loop_is_one_operator():
    rnn = tauflow.CfC(3, 5, backbone_layers=0).eval()
    traced = program(rnn)
    assert operators(traced).count("scan") == 1
    run = traced.module()
    for B, T in ((1, 1), (2, 7), (9, 40)):
        x, dt, h = torch.randn(B, T, 3), torch.rand(B, T), torch.randn(B, 5)
        mask = torch.rand(B, T) > 0.4
        y, last = run(x=x, dt=dt, mask=mask, h_in=h)
        expected = rnn(x, h, dt=dt, mask=mask)
        torch.testing.assert_close((y, last), expected, rtol=0, atol=1e-6)


def test_masked_samples_may_hold_anything(circuit):
    run = circuit[1].module()
    x, dt, h = torch.randn(2, 6, 2), torch.rand(2, 6), torch.zeros(2, 8)
    mask = torch.tensor([[1, 1, 0, 1, 0, 0], [0, 1, 1, 1, 1, 1]], dtype=torch.bool)
    clean = run(x=x, dt=dt, mask=mask, h_in=h)
    x[~mask], dt[~mask] = float("nan"), float("inf")
    assert all(
        torch.equal(a, b) for a, b in zip(run(x=x, dt=dt, mask=mask, h_in=h), clean, strict=True)
    )


def test_padding_of_tokens_may_be_no_token():
    torch.manual_seed(0)
    model = SequenceModel(tauflow.Elman(4, 5), 2, vocabulary=9).eval()
    x, dt, h = torch.randint(0, 9, (2, 5, 1)), torch.ones(2, 5), torch.zeros(2, 5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool)
    x[~mask] = -100
    results = program(model).module()(x=x, dt=dt, mask=mask, h_in=h)
    torch.testing.assert_close(results, model(x, mask=mask))


def test_zero_and_huge_gaps(circuit):
    rnn, traced = circuit
    dt = torch.tensor([[0.0, 1e-6, 1e4, 0.0, 1e8], [1e8, 1e8, 0.0, 0.5, 0.0]])
    x, h = torch.randn(2, 5, 2), torch.zeros(2, 8)
    mask = torch.ones(2, 5, dtype=torch.bool)
    results = traced.module()(x=x, dt=dt, mask=mask, h_in=h)
    for a, b in zip(results, rnn(x, h, dt=dt), strict=True):
        assert max_relative_difference(a.detach(), b.detach()) <= 1e-5


def test_layers_directions_and_projections():
    torch.manual_seed(1)
    rnn = tauflow.Elman(3, 5, num_layers=2, bidirectional=True, proj_size=2).eval()
    exported = ExportedSequence(rnn)
    held(exported, trace(exported, mask=True), mask=True)


@pytest.mark.thorough
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("lstm", 16, {}),
        ("gru-d", 4, {}),
        ("ode-lstm", 5, {}),
        ("lem", 8, {"num_layers": 2}),
        ("cfc-mmrnn", 6, {"proj_size": 1}),
        ("lmu", 4, {}),
    ],
)
def test_a_head_on_a_part_of_the_state_leaves_both_sizes_free(name, size, options):
    torch.manual_seed(2)
    for outputs in (1, 2):
        model = SequenceModel(tauflow.build(name, 2, size, **options), outputs).eval()
        exported = ExportedSequence(model)
        for mask in (True, False):
            held(exported, trace(exported, mask=mask), mask=mask)


@pytest.mark.thorough
def test_sizes_that_cannot_be_free_are_an_error_of_ours():
    class Sized(LTCCell):
        def readout(self, h):
            return h * (2.0 if h.shape[1] == 5 else 1.0)

    rnn = tauflow.RNN(Sized(2, 3)).eval()
    with pytest.raises(ExportError, match=r"cannot trace Sized\.readout: .*violated \(T\)"):
        program(rnn)
    program(rnn, dynamic="B")


def test_what_no_step_changes_is_computed_once(circuit):
    traced = circuit[1]
    inside = [str(n.target) for n in traced.graph_module.scan_combine_graph_0.graph.nodes]
    assert not any("softplus" in name for name in (*inside, *operators(traced)))


@pytest.mark.thorough
def test_heads_last_outputs_tokens_and_scaling():
    rnn = tauflow.LSTM(3, 5, return_sequences=False)
    tokens = SequenceModel(rnn, 2, vocabulary=7).eval()
    sequence, step = ExportedSequence(tokens), ExportedStep(tokens)
    held(sequence, trace(sequence, mask=False))
    held(step, trace(step))
    numbers = SequenceModel(tauflow.GRU(3, 5), 2).eval()
    scaling = [torch.tensor(v) for v in ([1.0, 2, 3], [3.0, 2, 1], [5.0, 6], [0.5, 2])]
    exported = ExportedStep(numbers, scaling=scaling, fixed_dt=0.5)
    traced = trace(exported)
    assert "dt" not in traced.graph_signature.user_inputs
    held(exported, traced)


def test_a_program_is_saved_and_read_again(tmp_path):
    rnn = tauflow.GNODE(2, 4, initial_state="learned").eval()
    torch.export.save(program_step(rnn), tmp_path / "step.pt2")
    run = torch.export.load(tmp_path / "step.pt2").module()
    x, dt, h = torch.randn(5, 2), torch.rand(5), torch.randn(5, 4)
    y, last = run(x=x, dt=dt, h_in=h)
    expected = rnn(x[:, None], h, dt=dt[:, None])[1]
    torch.testing.assert_close(last, expected)
    torch.testing.assert_close(y, expected)


def test_double_precision_stays_so():
    exported = ExportedStep(tauflow.CTRNN(2, 4).double().eval())
    assert held(exported, trace(exported)).max_difference < 1e-12


def dropping_head():
    model = SequenceModel(tauflow.CfC(2, 3), 2).eval()
    model.head = torch.nn.Sequential(model.head, torch.nn.FeatureAlphaDropout(0.5))
    return model


def hooked():
    model = SequenceModel(tauflow.CfC(2, 3), 2).eval()
    model.rnn.register_forward_hook(lambda module, args, out: None)
    return model


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: GNODECell(2, 3), "no sequence module.*tauflow.RNN"),
        (lambda: Transformer(2, 4), "no sequence module"),
        (lambda: Ensemble([SequenceModel(tauflow.GRU(2, 3), 2)]), "a single one, such as --model"),
        (lambda: tauflow.CfC(2, 3, backbone_dropout=0.5), "no dropout.*eval"),
        (dropping_head, "no dropout.*eval"),
        (hooked, "CfC has forward hooks, which a program would leave out"),
        (lambda: tauflow.GNODE(2, 3, solver="dopri5").eval(), "'dopri5'.*rk4"),
        (lambda: tauflow.ODELSTM(2, 3, solver="bosh3").eval(), "'bosh3'.*rk4"),
    ],
)
def test_what_cannot_be_a_program_is_refused_with_the_reason(build, words):
    with pytest.raises(ExportError, match=words):
        program(build())


def test_arguments_that_make_no_sense_are_refused():
    rnn = tauflow.GRU(2, 3)
    with pytest.raises(ExportError, match="bidirectional"):
        program_step(tauflow.GRU(2, 3, bidirectional=True))
    with pytest.raises(ArgumentError, match="of 'BT', or ''"):
        program(rnn, dynamic="BTX")
    with pytest.raises(ArgumentError, match="of 'B', or ''"):
        program_step(rnn, dynamic="T")
    with pytest.raises(ArgumentError, match="does not model missing features"):
        program(rnn, observed=True)


def test_a_difference_is_an_error_and_so_is_a_number_that_is_none():
    exported = ExportedStep(tauflow.GRU(2, 3).eval())
    run = trace(exported).module()

    def wrong_by(amount):
        return lambda inputs: tuple(value + amount for value in run(**inputs))

    held(exported, trace(exported))
    with pytest.raises(ExportError, match=r"differs from the model by .*, more than 1e-05"):
        check_parity(exported, wrong_by(1e-3), sizes=(2, 4))
    with pytest.raises(ExportError, match="differs from the model by nan"):
        check_parity(exported, wrong_by(float("nan")), sizes=(2, 4))


def test_the_program_is_of_the_parameters_as_they_were():
    rnn = tauflow.GRU(2, 3)
    run = program_step(rnn).module()
    inputs = {"x": torch.randn(1, 2), "dt": torch.ones(1), "h_in": torch.zeros(1, 3)}
    before = run(**inputs)[0]
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.add_(1.0)
    assert torch.equal(run(**inputs)[0], before)
    assert rnn.training
    assert all(parameter.requires_grad for parameter in rnn.parameters())


def test_any_cell_of_the_users_own():
    class Own(LTCCell):
        def step(self, x, h, dt):
            return h + dt * torch.tanh(x @ self.w_x) if x.shape[1] else h

    exported = ExportedSequence(tauflow.RNN(Own(2, 3)).eval())
    held(exported, trace(exported, mask=False))
