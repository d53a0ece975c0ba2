"""Scales inside what is exported, of numbers that single precision hardly holds too."""

import json
import subprocess
import warnings

import numpy as np
import onnxruntime
import pytest
import torch

import tauflow
from tauflow.errors import ExportError
from tauflow.export import IOSchema, to_c, to_onnx, to_program
from tauflow.export.c_check import find_compiler
from tauflow.export.exportable_model import ExportedStep
from tauflow.export.parity import check_parity
from tauflow.export.torch_program import trace
from tauflow.models import SequenceModel

FAR = IOSchema(x_mean=[5400000.3, 0.0], x_scale=[2.0, 1.0], y_mean=[5400000.3], y_scale=[2.0])
STEPS = 30
pytestmark = pytest.mark.filterwarnings("ignore:.*holds few digits:UserWarning")


def model(seed=0):
    torch.manual_seed(seed)
    return SequenceModel(tauflow.GRU(2, 8), 1).eval()


def samples():
    """Return coordinates in metres that single precision holds exactly, and a speed, (T, 2)."""
    rng = np.random.default_rng(0)
    north = 5400000.5 + np.round(rng.standard_normal(STEPS) * 4) / 2
    return np.stack([north, rng.standard_normal(STEPS)], 1).astype(np.float32)


def expected(network, x, labels=FAR):
    """Return what the model says to samples that were scaled in double precision, unscaled."""
    mean, scale = np.array(labels.x_mean), np.array(labels.x_scale)
    scaled = torch.from_numpy(((x.astype(np.float64) - mean) / scale).astype(np.float32))
    with torch.no_grad():
        y = network(scaled, dt=1.0)[0][:, 0].double().numpy()
    return y * labels.y_scale[0] + labels.y_mean[0] if labels.y_mean else y


def by_program(path, network, labels):
    written = to_program(
        network, path / "m.pt2", mode="step", fixed_dt=1.0, schema=labels, scaled=True
    )
    run = torch.export.load(written.path).module()
    return lambda x, h: run(x=torch.from_numpy(x), h_in=h)


def by_onnx(path, network, labels):
    written = to_onnx(
        network, path / "m.onnx", mode="step", fixed_dt=1.0, schema=labels, scaled=True
    )
    session = onnxruntime.InferenceSession(str(written.path), providers=["CPUExecutionProvider"])
    return lambda x, h: map(
        torch.from_numpy, session.run(["y", "h_out"], {"x": x, "h_in": h.numpy()})
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", [by_program, by_onnx])
@pytest.mark.parametrize("outputs", [True, False])
def test_a_mean_far_from_zero_keeps_its_digits(form, outputs, tmp_path):
    labels = FAR if outputs else IOSchema(x_mean=FAR.x_mean, x_scale=FAR.x_scale)
    network, x = model(), samples()
    run, h, predictions = form(tmp_path, network, labels), torch.zeros(1, 8), []
    for sample in x:
        y, h = run(sample[None], h)
        predictions.append(float(y))
    close = {"atol": 0.25} if outputs else {"atol": 1e-6}  # half a step of single precision there
    np.testing.assert_allclose(predictions, expected(network, x, labels), rtol=0, **close)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_mean_far_from_zero_keeps_its_digits_in_c(tmp_path):
    network, x = model(), samples()
    labels = IOSchema(x_mean=FAR.x_mean, x_scale=FAR.x_scale)
    to_c(network, tmp_path / "c", fixed_dt=1.0, schema=labels, scaled=True)
    command = [*find_compiler(), "-std=c99", "-O2", "main.c", "model.c", "-o", "built", "-lm"]
    subprocess.run(command, cwd=tmp_path / "c", check=True)
    lines = "".join(f"{north:.9g},{speed:.9g}\n" for north, speed in x.tolist())
    program = tmp_path / "c" / "built"
    ran = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    outputs = [float(line) for line in ran.stdout.split()]
    np.testing.assert_allclose(outputs, expected(network, x, labels), rtol=0, atol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("part", "error"), [("x_low", None), ("y_high", 0.2)])
def test_the_check_sees_a_mean_that_was_rounded(part, error):
    """Of the outputs too, of which a fifth is no part of half a million."""
    labels = IOSchema(x_mean=FAR.x_mean, x_scale=FAR.x_scale, y_mean=[540000.03], y_scale=[0.05])
    exported = ExportedStep(model(), scaling=labels.scaling())
    run = trace(exported).module()
    check_parity(exported, lambda inputs: run(**inputs), sizes=(4, 17))
    if error is None:
        exported.scaling.get_buffer(part).zero_()
    else:
        exported.scaling.get_buffer(part).add_(error)
    wrong = trace(exported).module()
    with pytest.raises(ExportError, match="differs from the model"):
        check_parity(exported, lambda inputs: wrong(**inputs), sizes=(4, 17))


@pytest.mark.parametrize(
    ("dtype", "labels", "match"),
    [
        (torch.float16, FAR, r"x_mean is \[5400000\.3, 0\.0\], which torch\.float16 does not hold"),
        (torch.float32, IOSchema(x_mean=[0.0, 0.0], x_scale=[1.0, 1e-60]), "x_scale is"),
        (
            torch.float32,
            IOSchema(x_mean=[0, 0], x_scale=[1, 1], y_mean=[0], y_scale=[1e60]),
            "y_scale is",
        ),
    ],
)
def test_scales_that_the_dtype_does_not_hold_are_refused(dtype, labels, match):
    with pytest.raises(ExportError, match=rf"{match}.*\.double\(\), or leave the scaling outside"):
        ExportedStep(model().to(dtype), scaling=labels.scaling())


def test_in_double_precision_a_mean_is_one_number():
    exported = ExportedStep(model().double(), scaling=FAR.scaling())
    assert not exported.scaling.x_low.any()
    run = trace(exported).module()
    assert check_parity(exported, lambda inputs: run(**inputs), sizes=(2, 9)).max_difference < 1e-12


def test_the_description_has_the_labels_as_they_were_given(tmp_path):
    written = to_program(model(), tmp_path / "m.pt2", mode="step", schema=FAR, scaled=True)
    metadata = json.loads(written.metadata_path.read_text())
    assert metadata["labels"]["x_mean"] == [5400000.3, 0.0]
    assert metadata["scaling_inside"]


@pytest.mark.sampled(20)
@pytest.mark.parametrize(
    ("mean", "scale", "double", "warned"),
    [
        (5.4e6, 3.0, False, True),
        (1.7e9, 1e-3, False, True),
        (-2e4, 1.0, False, True),
        (5.4e6, 3.0, True, False),
        (100.0, 1.0, False, False),
        (5.4e6, 1e4, False, False),
        (2.5, 1e30, False, False),
    ],
)
def test_inputs_that_single_precision_rounds_are_named(mean, scale, double, warned, tmp_path):
    labels = IOSchema(inputs=["north", "speed"], x_mean=[mean, 0.0], x_scale=[scale, 1.0])
    assert (abs(np.spacing(np.float32(mean))) > 1e-3 * scale) == (warned or double)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels.warn_precision_loss(torch.float64 if double else torch.float32)
    assert len(caught) == warned
    assert all(
        "few digits of inputs far from zero: north (mean" in str(warning) for warning in caught
    )
    if warned and scale == 3.0:
        with pytest.warns(UserWarning, match="north"):
            to_program(model(), tmp_path / "m.pt2", fixed_dt=1.0, schema=labels, scaled=True)
