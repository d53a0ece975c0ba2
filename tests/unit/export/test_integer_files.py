"""C in integers: equal to NumPy bit for bit, near the model, and refused where it is not."""

import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, ExportError, ShapeError
from tauflow.export import IOSchema, to_c
from tauflow.export.exportable_model import ExportedStep
from tauflow.export.integer_calibration import (
    check_integers,
    read_calibration,
    run_exact,
    run_integer,
)
from tauflow.export.integer_files import compile_integers
from tauflow.export.parity import get_initial_state

sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.integers import run_arbitrary

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler")
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wmissing-prototypes", "-Wdouble-promotion"),
    *("-Werror", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
)


def ncp():
    wiring = tauflow.NCP(
        6, 4, 2, sensory_fanout=3, inter_fanout=3, recurrent_command_synapses=4, motor_fanin=3
    )
    return tauflow.LTC(3, wiring)


NETWORKS = {
    "cfc": lambda: tauflow.CfC(3, 8, backbone_units=12),
    "cfc-pure": lambda: tauflow.CfC(3, 8, mode="pure"),
    "cfc-no-gate": lambda: tauflow.CfC(3, 8, mode="no_gate", backbone_units=12),
    "cfc-memory": lambda: tauflow.MixedMemory(3, 8, core="cfc"),
    "cfc-layers": lambda: tauflow.CfC(3, 8, backbone_units=12, num_layers=2),
    "wired-cfc": lambda: tauflow.WiredCfC(3, tauflow.AutoNCP(12, 2)),
    "gru": lambda: tauflow.GRU(3, 8, append_dt=True),
    "lstm": lambda: tauflow.LSTM(3, 8),
    "ltc": lambda: ncp(),
    "ltc-dense": lambda: tauflow.LTC(3, 5),
}
BY_RULE = ("ode-lstm", "ode-lstm-torch", "ct-rnn", "gnode", "gru-d", "mgru", "lem-forward", "lrc")


def samples(seed=0, sequences=4, steps=16, inputs=3, longest=5.0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((sequences, steps, inputs))
    return x, np.exp(rng.uniform(np.log(0.1), np.log(longest), (sequences, steps)))


def build(name):
    torch.manual_seed(0)
    body = NETWORKS[name]() if name in NETWORKS else tauflow.build(name, 3, 8)
    return tauflow.SequenceModel(body, 2).eval()


def prepare(model, calibration):
    step = ExportedStep(model.double(), is_sparse=True, dynamic="")
    first = {"x": torch.zeros(1, 1, 3).double(), "dt": torch.ones(1, 1).double()}
    start = get_initial_state(step, first)[0].numpy()
    return step, read_calibration(calibration, step, start)[0]


def check(model, calibration, *, is_int8=False):
    step, sequences = prepare(model, calibration)
    exact, _ = run_exact(step, sequences, [])
    integers = compile_integers(step, sequences, np.concatenate(exact), [], is_int8=is_int8)
    longest = min(0.5 * cell.max_stable_dt() for cell in step.cells)
    return check_integers(
        integers, step, sequences, [], exact=exact, scales=[], kind="", longest=longest
    )


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", NETWORKS)
def test_int16_is_near_the_model(name):
    checks = check(build(name), samples())
    assert checks.error < 0.004
    assert checks.error_rms < 0.001
    assert checks.error_by_gap["0.001"] < 0.01
    assert checks.error_by_gap["1"] < 0.004
    assert checks.largest_sum <= 1


def test_decades_of_time_steps_are_checked_whatever_the_dtype_of_the_data():
    x, _ = samples()
    by_dtype = [
        check(build("gru-d"), (x, np.full(x.shape[:2], 0.0125, dtype))).error_by_gap["0.1"]
        for dtype in (np.float32, np.float64)
    ]
    assert by_dtype[0] == pytest.approx(by_dtype[1], rel=0.5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BY_RULE)
def test_cells_of_the_papers_and_others(name):
    assert check(build(name), samples(longest=1.0)).error < 0.008


def test_missing_values_that_the_calibration_has_not():
    x, dt = samples(longest=1.0)
    step, sequences = prepare(build("gru-d"), (x, dt))
    outputs = np.concatenate(run_exact(step, sequences, [])[0])
    integers = compile_integers(step, sequences, outputs, [], is_int8=False)
    missing = np.where(np.random.default_rng(1).random(x.shape) < 0.4, np.nan, x)
    later, _ = read_calibration((missing, dt), step, sequences.h[0])
    exact = np.concatenate(run_exact(step, later, [])[0])
    outputs = np.concatenate(run_integer(integers, later)[0])
    assert np.abs(outputs - exact).max() < 0.004 * np.ptp(exact)


@pytest.mark.parametrize("name", ["cfc", "gru"])
def test_int8_weights_are_near_too(name):
    assert check(build(name), samples(), is_int8=True).error < 0.015


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a function that exports a network once."""
    done = {}

    def export(name, dtype="int16"):
        if (name, dtype) not in done:
            folder = tmp_path_factory.mktemp("c") / "c"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                done[name, dtype] = to_c(build(name), folder, dtype=dtype, calibration=samples())
        return done[name, dtype].path.parent

    return export


def compile_c(folder, *sources):
    program = folder / f"{sources[0]}-built"
    command = [CC, *STRICT, *sources, "model.c", "-o", program, "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.sampled(8)
@needs_cc
@pytest.mark.parametrize(
    ("name", "dtype"), [("cfc", "int8"), ("gru", "int16"), ("ltc", "int16"), ("gru-d", "int16")]
)
def test_c_equals_numpy_bit_for_bit_and_has_no_undefined_behaviour(name, dtype, written):
    folder = written(name, dtype)
    vector = (folder / "test_vector.csv").read_text()
    program = compile_c(folder, "main.c")
    ran = subprocess.run([program, "--check"], input=vector, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "samples, largest difference 0\n" in ran.stdout
    wrong = vector.rpartition(",")[0] + ",30000\n"
    ran = subprocess.run([program, "--check"], input=wrong, capture_output=True, text=True)
    assert ran.returncode == 1
    run_arbitrary(folder, 20_000)


def run_program(folder, x, dt):
    """Return what the program of a folder prints of a sequence."""
    lines = [",".join(map(str, [*row, gap])) for row, gap in zip(x, dt, strict=True)]
    program = compile_c(folder, "main.c")
    ran = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True)
    return np.array([line.split(",") for line in ran.stdout.splitlines()], float)


@needs_cc
def test_the_program_refuses_other_lines(written):
    program = compile_c(written("gru"), "main.c")
    ran = subprocess.run([program], input="1,2\n", capture_output=True, text=True)
    assert "line 1: expected 4 numbers" in ran.stderr


def test_what_is_written_says_how_far_it_is(written):
    folder = written("cfc")
    metadata = json.loads((folder / "model.json").read_text())
    checks = metadata["integers"]["checks"]
    assert metadata["dtype"] == "int16"
    assert 0 < checks["error_rms"] < checks["error"] < 0.004
    assert set(checks["error_by_gap"]) >= {"0.001", "1", "1000"}
    assert metadata["bytes"]["stack"] < 400
    readme = (folder / "README.md").read_text()
    assert f"{100 * checks['error']:.3g} %" in readme
    assert "where missing" not in (folder / "model.h").read_text()  # for nothing is scaled
    source = (folder / "model.c").read_text()
    assert "float" not in source
    assert "int64" not in source
    assert "long" not in source


@needs_cc
def test_scales_of_a_table_are_folded_in_and_far_means_too(tmp_path):
    model = build("lstm")
    mean, scale = np.array([5e3, -3.0, 0.0]), np.array([2.0, 0.5, 100.0])
    schema = IOSchema(
        x_mean=mean.tolist(), x_scale=scale.tolist(), y_mean=[20.0, 99.0], y_scale=[7.0, 0.5]
    )
    x, dt = samples()
    raw = x * scale + mean
    export = to_c(
        model, tmp_path / "c", dtype="int16", calibration=(raw, dt), schema=schema, scaled=True
    )
    assert export.parity.max_difference < 0.005
    header = (tmp_path / "c" / "model.h").read_text()
    assert re.search(r"x\[0\] = x0 \* 2\^\d+ - \d+, rounded", header)
    assert re.search(r"y1 = \(y\[1\] \+ \d+\) / 2\^\d+", header)
    y = run_program(tmp_path / "c", raw[0], dt[0])
    model.rnn.return_sequences = True
    with torch.no_grad():
        exact = model(torch.tensor(x[:1]).float(), dt=torch.tensor(dt[:1]).float())[0][0].numpy()
    exact = exact * [7.0, 0.5] + [20.0, 99.0]
    assert (np.abs(y - exact) < 0.005 * np.ptp(exact, axis=0)).all()


@needs_cc
def test_missing_numbers_are_the_mean_in_the_units_before_scaling(tmp_path):
    model, schema = build("lstm"), IOSchema(x_mean=[5e3, 50.0, -3.0], x_scale=[2.0, 2.0, 0.5])
    x, dt = samples()
    x = x * schema.x_scale + schema.x_mean
    written = to_c(
        model, tmp_path / "c", dtype="int16", calibration=(x, dt), schema=schema, scaled=True
    )
    metadata = json.loads(written.metadata_path.read_text())["integers"]
    assert re.search(
        rf"x0 \* .* saturated; {metadata['x_missing'][0]} where missing",
        (tmp_path / "c" / "model.h").read_text(),
    )
    missing = np.random.default_rng(1).random(x[0].shape) < 0.3
    gaps = np.where(missing, np.nan, x[0])
    filled = np.where(missing, schema.x_mean, x[0])
    y = run_program(tmp_path / "c", gaps, dt[0])
    np.testing.assert_array_equal(y, run_program(tmp_path / "c", filled, dt[0]))
    model.rnn.return_sequences = True
    scaled = torch.tensor((filled - schema.x_mean) / schema.x_scale)[None].float()
    with torch.no_grad():
        exact = model(scaled, dt=torch.tensor(dt[:1]).float())[0][0].numpy()
    assert np.abs(y - exact).max() < 0.005 * np.ptp(exact)


@pytest.mark.filterwarnings("ignore:time steps beyond those:UserWarning")
@pytest.mark.parametrize("name", ["gru", "gru-d"])
def test_calibration_with_missing_numbers_far_from_zero(name, tmp_path):
    schema = IOSchema(x_mean=[5e3, 50.0, -3.0], x_scale=[2.0, 2.0, 0.5])
    x, dt = samples(longest=1.0)
    x = np.where(np.random.default_rng(1).random(x.shape) < 0.3, np.nan, x)
    options = {"dtype": "int16", "schema": schema, "scaled": True}
    calibration = (x * schema.x_scale + schema.x_mean, dt)
    written = to_c(build(name), tmp_path / "c", calibration=calibration, **options)
    assert written.parity.max_difference < 0.004


@needs_cc
@pytest.mark.parametrize("gap", ["nan", "-1", "inf"])
def test_the_program_refuses_time_steps_that_are_none(gap, written):
    program = compile_c(written("gru"), "main.c")
    text = f"1,2,3,1\n1,2,3,{gap}\n"
    ran = subprocess.run([program], input=text, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "line 2: the time step must be finite and not negative" in ran.stderr


def test_the_metric_before_and_after(tmp_path):
    x, dt = samples()
    model = build("lstm")
    with torch.no_grad():
        y = model(torch.tensor(x).float(), dt=torch.tensor(dt).float())[0].numpy() + 0.5
    to_c(model, tmp_path / "c", dtype="int8", calibration=(x, dt, y))
    checks = json.loads((tmp_path / "c" / "model.json").read_text())["integers"]["checks"]
    assert checks["metric"] == "mse"
    assert checks["metric_float"] == pytest.approx(0.25, rel=1e-4)
    assert checks["metric_integer"] == pytest.approx(0.25, rel=0.05)


def test_bad_calibration_is_refused_with_the_reason(tmp_path):
    x, dt = samples()
    missing = np.where(x > 2, np.nan, x)
    for calibration, words in (
        (None, r"calibration=\(x, dt\)"),
        ((missing, dt), "NaN or infinite"),
        ((x, 0 * dt), "every time step of calibration is 0"),
        ((x, -dt), "finite and not negative"),
        ((x[:0], dt[:0]), "at least one sample"),
        ((x, [["a"]]), "must hold numbers"),
    ):
        with pytest.raises(ArgumentError, match=words):
            to_c(build("gru"), tmp_path / "c", dtype="int16", calibration=calibration)
    for y, kind, words in (
        (np.zeros((4, 16, 5)), ShapeError, r"expected \(T, 2\)"),
        (np.zeros((3, 16, 2)), ArgumentError, "targets for 3 and inputs of 4 sequences"),
        (np.full((4, 2), np.nan), ArgumentError, "targets that are NaN"),
    ):
        with pytest.raises(kind, match=words):
            to_c(build("gru"), tmp_path / "c", dtype="int16", calibration=(x, dt, y))
    with pytest.raises(ShapeError, match=r"expected \(T, 3\)"):
        to_c(build("gru"), tmp_path / "c", dtype="int16", calibration=(x[..., :2], dt))
    assert not (tmp_path / "c").exists()


def test_what_integers_cannot_do_is_refused_with_the_reason(tmp_path):
    calibration = samples()
    for name, options, words in (
        ("ltc", {"dtype": "int8"}, "synapses of an LTC"),
        ("cfc", {"dtype": "int8", "tolerance": 1e-5}, "of the outputs' range.*as int16"),
        ("ltc-neuronal", {"dtype": "int16"}, "of the outputs' range.*as float32"),
        ("phased-lstm", {"dtype": "int16"}, "a clock since"),
    ):
        with pytest.raises(ExportError, match=words):
            to_c(build(name), tmp_path / "c", calibration=calibration, **options)
    with pytest.raises(ArgumentError, match="fixed_dt"):
        to_c(build("gru"), tmp_path / "c", dtype="int16", calibration=calibration, fixed_dt=1.0)
    with pytest.raises(ArgumentError, match="calibration is for"):
        to_c(build("gru"), tmp_path / "c", calibration=calibration)
    assert not (tmp_path / "c").exists()


def test_constant_inputs_and_gaps_beyond_the_calibrated_ones_are_warned_of(tmp_path):
    x, dt = samples()
    x[..., 1] = 0.5
    with pytest.warns(UserWarning, match="constant inputs, x1:"):
        to_c(build("lstm"), tmp_path / "a", dtype="int16", calibration=(x, dt))
    model = build("cfc")
    with pytest.warns(UserWarning, match="time steps beyond those of the calibration data"):
        to_c(model, tmp_path / "b", dtype="int8", calibration=samples(longest=0.2), tolerance=0.006)
    euler = build("ct-rnn")  # whose steps overshoot far before they are unstable
    x, dt = samples(longest=2.0)
    with pytest.warns(UserWarning, match=r"range at time steps of about (3|7)") as caught:
        export = to_c(euler, tmp_path / "d", dtype="int16", calibration=(x, dt))
    assert len(caught) == 1
    checks = json.loads((tmp_path / "d" / "model.json").read_text())["integers"]["checks"]
    tried = [float(gap) for gap in checks["error_by_gap"]]
    assert sum(gap > dt.max() for gap in tried) >= 4
    assert export.parity.max_difference < 0.02
