import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch

import tauflow
from tauflow.errors import ArgumentError, DataNotFoundError, ExportError
from tauflow.export import IOSchema, to_c
from tauflow.export.io_schema import sanitize_comment

CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")
STRICT = (
    *("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wmissing-prototypes", "-Wdouble-promotion"),
    *("-Werror", "-O1"),
)
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
HOSTILE = (
    'a"; system("touch owned"); /* */ int main(void) { return 3; } /*',
    "two\nlines\r*/ #error no",
    "trigraph ??/",
    "\\",
)
STEPS = 10_000


def nineteen():
    """Return the circuit of 12 inter, 6 command and 1 motor neurons."""
    wiring = tauflow.NCP(
        12, 6, 1, sensory_fanout=4, inter_fanout=4, recurrent_command_synapses=4, motor_fanin=6
    )
    return tauflow.LTC(4, wiring).eval()


def twenty_eight():
    # with biases, which are 0 in the other initialisation and then are left out of the graph
    return tauflow.WiredCfC(4, tauflow.AutoNCP(28, 4), init="torch").eval()


@pytest.fixture(scope="module")
def circuit(tmp_path_factory):
    torch.manual_seed(0)
    rnn, folder = nineteen(), tmp_path_factory.mktemp("c") / "ncp"
    return rnn, to_c(rnn, folder, name="ncp", schema=IOSchema('s */ " \n', HOSTILE, HOSTILE[:1]))


@pytest.fixture(scope="module")
def layered(tmp_path_factory):
    torch.manual_seed(0)
    rnn, folder = twenty_eight(), tmp_path_factory.mktemp("c") / "wired"
    return rnn, to_c(rnn, folder, name="wired")


def build(folder, *files, flags=STRICT, to="built"):
    command = [CC, *flags, *map(str, files), "-o", to, "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / to


@pytest.fixture(scope="module")
def sanitized():
    """Return the program of an export, compiled with every check that the compiler has, once."""
    built = {}

    def program(written):
        folder, name = written.path.parent, written.path.stem
        if name not in built:
            flags = (*STRICT, "-O0", *SANITIZED)
            built[name] = build(folder, "main.c", f"{name}.c", flags=flags, to="sanitized")
        return built[name]

    return program


@pytest.mark.sampled(4)
@pytest.mark.parametrize("exported", ["circuit", "layered"])
def test_ten_thousand_irregular_steps_equal_the_stream(exported, request, sanitized):
    rnn, written = request.getfixturevalue(exported)
    program = sanitized(written)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, 4)).astype(np.float32)
    dt = rng.exponential(1.0, STEPS).astype(np.float32)
    dt[rng.random(STEPS) < 0.1] = 0.0
    dt[::1000] = 1e4
    stream = rnn.stream()
    expected = np.array([stream.step(a, float(gap)) for a, gap in zip(x, dt, strict=True)])
    samples = "".join(
        ",".join(f"{v:.9g}" for v in (*a, gap)) + "\n" for a, gap in zip(x, dt, strict=True)
    )
    ran = subprocess.run([program], input=samples, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    results = np.array([line.split(",") for line in ran.stdout.splitlines()], dtype=np.float64)
    assert np.abs(results - expected).max() <= 1e-5
    assert not ran.stderr


def test_the_circuit_evaluates_its_own_synapses_only(circuit):
    rnn, written = circuit
    (written.path.parent / "count.c").write_text("""
        #include <math.h>
        #include <stdio.h>
        static long evaluated;
        static float counted(float v) { evaluated++; return expf(v); }
        #define expf counted
        #include "ncp.c"
        #include "ncp.h"
        int main(void) {
            const float x[1][NCP_INPUTS] = {{0.1f, -0.2f, 0.3f, 0.4f}}, dt[1] = {0.5f};
            float h[2][1][NCP_STATE], y[1][NCP_OUTPUTS];
            ncp_start(x, h[0]);
            ncp_step(x, dt, (const float(*)[NCP_STATE])h[0], y, h[1]);
            printf("%ld", evaluated);
            return 0;
        }
    """)
    program = build(written.path.parent, "count.c", flags=("-std=c99", "-O1"))
    evaluated = int(subprocess.run([program], capture_output=True, check=True).stdout)
    cell = rnn.cell
    recurrent, sensory = int(cell.synapses.sum()), int(cell.synapses_x.sum())
    assert evaluated == cell.substeps * recurrent + sensory
    assert recurrent + sensory < 0.4 * (cell.synapses.numel() + cell.synapses_x.numel())


def test_layers_hold_the_weights_of_their_own_synapses_only(layered):
    rnn, written = layered
    source = written.path.read_text()
    sizes = re.findall(r"^static const float \w+\[(\d+)\]", source, re.M)
    assert sizes
    held = sum(map(int, sizes))
    layers = rnn.cell.layers
    # with biases, and a few constants such as 1 and -1
    expected = sum(int(layer.synapses.count_nonzero()) + len(layer.bias) for layer in layers)
    dense = sum(layer.weight.numel() + len(layer.bias) for layer in layers)
    assert expected <= held <= expected + 8
    assert held < dense


def test_nothing_is_allocated_and_nothing_printed(circuit):
    source = circuit[1].path.read_text()
    assert not re.search(r"\b(malloc|calloc|free|printf|fopen)\b", source)
    assert set(re.findall(r"#include <(.*)>", source)) <= {
        *("stdint.h", "stdbool.h", "stddef.h", "math.h", "float.h", "string.h")
    }


def test_names_are_harmless_where_they_stand(circuit):
    folder = circuit[1].path.parent
    header = (folder / "ncp.h").read_text()
    assert "a?; system(?touch owned?); ?? ?? int main" in header
    assert header.count("/*") == header.count("*/") == 4
    assert json.loads((folder / "ncp.json").read_text())["labels"]["inputs"] == list(HOSTILE)
    build(folder, "main.c", "ncp.c")
    assert not (folder / "owned").exists()
    assert sanitize_comment("a\u0000b\u202e*/") == "a?b???"


def test_make_builds_and_tests(layered):
    folder = layered[1].path.parent
    if shutil.which("make") is None:
        pytest.skip("no make")
    done = subprocess.run(["make", "test"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1000 samples, largest difference" in done.stdout


def test_broken_lines_are_refused_by_number(layered, sanitized):
    program = sanitized(layered[1])
    for text, words in (
        ("# x\n1,2,3,4,1\n1,2,3\n", "line 3: expected 5 numbers"),
        ("1,2,3,four,1\n", "line 1: expected 5 numbers"),
        ("1,2,3,4,1\n1,2,3,4,1,9\n", "line 2: expected 5 numbers"),
        ("1,2,3,4,1,\n", "line 1: expected 5 numbers"),
        ("1,2,3,4,1 9\n", "line 1: expected 5 numbers"),
        ("1,2,3,4,-1\n", "line 1: the time step must be finite and not negative"),
        ("1,2,3,4,nan\n", "line 1: the time step must be finite"),
        ("1,2,3,4,1e99\n", "line 1: the time step must be finite"),
    ):
        ran = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
        assert ran.returncode == 1
        assert words in ran.stderr


def test_ids_that_are_no_tokens_are_refused(tmp_path):
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.Elman(4, 3), 2, vocabulary=9).eval()
    written = to_c(model, tmp_path / "c", fixed_dt=1.0)
    assert "x must be an id below 9" in (tmp_path / "c" / "model.h").read_text()
    program = build(written.path.parent, "main.c", "model.c", flags=(*STRICT, *SANITIZED))
    for token, code in (("8", 0), ("0", 0), ("9", 1), ("-1", 1), ("nan", 1), ("1e30", 1)):
        ran = subprocess.run([program], input=token, capture_output=True, text=True, check=False)
        assert ran.returncode == code
        assert ("line 1: the token must be an id from 0 to 8" in ran.stderr) == code


def test_what_ends_a_line_is_not_part_of_it(layered, sanitized):
    program, outputs = sanitized(layered[1]), []
    for end in ("\n", "\r\n", " \t\n", ""):
        ran = subprocess.run([program], input=f"1,2,3,4,1{end}".encode(), capture_output=True)
        assert ran.returncode == 0, ran.stderr
        outputs.append(ran.stdout)
    assert len(set(outputs)) == 1


def test_a_check_refuses_lines_of_other_lengths(layered, sanitized):
    program, folder = sanitized(layered[1]), layered[1].path.parent
    first = (folder / "test_vector.csv").read_text().splitlines()[0]
    numbers = first.count(",") + 1
    for text in (f"{first},0", first.rpartition(",")[0]):
        ran = subprocess.run([program, "--check"], input=text, capture_output=True, text=True)
        assert ran.returncode == 1
        assert f"line 1: expected {numbers} numbers" in ran.stderr
    ran = subprocess.run([program], input=first, capture_output=True, text=True, check=False)
    assert ran.returncode == 1  # with the expected outputs behind the sample
    assert "line 1: expected 5 numbers" in ran.stderr


def test_scaled_inputs_may_be_missing(tmp_path):
    torch.manual_seed(0)
    rnn, means, scales = tauflow.Elman(2, 3).eval(), [60.0, -3.0], [10.0, 0.5]
    labels = IOSchema(x_mean=means, x_scale=scales, y="values")
    written = to_c(rnn, tmp_path / "c", fixed_dt=1.0, schema=labels, scaled=True)
    assert "nan" in (tmp_path / "c" / "test_vector.csv").read_text()
    header = (tmp_path / "c" / "model.h").read_text()
    assert "before scaling, NaN where missing" in header
    assert "y, values:" in header
    program = build(written.path.parent, "main.c", "model.c")
    for x in ("nan,-2", "60,-2"):
        ran = subprocess.run([program], input=f"{x}\n", capture_output=True, text=True, check=True)
        outputs = [float(v) for v in ran.stdout.split(",")]
        expected = rnn(torch.tensor([[[0.0, 2.0]]]), dt=1.0)[0].flatten().tolist()
        assert outputs == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "name", ["", "a b", "x*/", 'a"', "main", "int", "1a", "a" * 41, "a" * 50, "a\nb"]
)
def test_names_that_are_no_identifiers_are_refused(name, tmp_path):
    with pytest.raises(ArgumentError, match="name must be an identifier of C"):
        to_c(tauflow.Elman(2, 3), tmp_path / "c", name=name)
    assert list(tmp_path.iterdir()) == []


def test_a_fixed_time_step_may_be_a_number_of_numpy(tmp_path):
    to_c(tauflow.CfC(2, 3).eval(), tmp_path / "c", fixed_dt=np.float32(0.5))
    assert json.loads((tmp_path / "c" / "model.json").read_text())["gap"] == 0.5


def test_a_name_may_be_like_that_of_the_weights(tmp_path):
    written = to_c(tauflow.Elman(2, 3).eval(), tmp_path / "c", name="weight0")
    build(written.path.parent, "main.c", "weight0.c")


def test_what_cannot_be_c_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ExportError, match=r"single precision.*\.float"):
        to_c(tauflow.Elman(2, 3).double(), tmp_path / "c")
    with pytest.raises(ExportError, match="bidirectional"):
        to_c(tauflow.Elman(2, 3, bidirectional=True), tmp_path / "c")
    with pytest.raises(DataNotFoundError, match=r"there is no folder .*Create it first"):
        to_c(tauflow.Elman(2, 3), tmp_path / "none" / "c")
    for step in ("a", float("nan"), torch.tensor(1.0)):
        with pytest.raises(ArgumentError, match="fixed_dt must be a finite number"):
            to_c(tauflow.Elman(2, 3), tmp_path / "c", fixed_dt=step)
    with pytest.raises(ArgumentError, match="hidden_size must be at least 1"):
        to_c(tauflow.Elman(2, 0), tmp_path / "c")
    broken = tauflow.Elman(2, 3)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("inf"))
    with pytest.raises(ExportError, match="not finite"):
        to_c(broken, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_does_not_forget_may_differ_by_its_own_roundings(tmp_path):
    torch.manual_seed(0)
    rotation = tauflow.ExpRNN(2, 4).eval()
    parity = to_c(rotation, tmp_path / "rotation").parity
    assert 1e-5 < parity.max_difference <= parity.tolerance <= 1e-3
    built = build(tmp_path / "rotation", "main.c", "model.c")  # no warning of dt, which is unused
    with (tmp_path / "rotation" / "test_vector.csv").open() as vector:
        assert subprocess.run([built, "--check"], stdin=vector, check=False).returncode == 0
    with pytest.raises(ExportError, match="more than 1e-05"):
        to_c(rotation, tmp_path / "strict", tolerance=1e-5)
    assert to_c(tauflow.Elman(2, 4).eval(), tmp_path / "elman").parity.tolerance == 1e-5


def test_a_product_of_one_number(tmp_path):
    torch.manual_seed(0)
    model = tauflow.SequenceModel(tauflow.Elman(2, 4), 1).eval()
    model.head = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Linear(1, 3))
    assert to_c(model, tmp_path / "head").parity.max_difference <= 1e-5
    assert to_c(tauflow.build("s6", 2, 4).eval(), tmp_path / "s6").parity.max_difference <= 1e-5


def test_an_unstable_network_is_refused_and_the_error_says_why(tmp_path):
    torch.manual_seed(0)
    unstable = tauflow.build("ltc-neuronal", 3, 6).eval()
    with pytest.raises(ExportError, match=r"more than 0\.001. Single precision takes the model"):
        to_c(unstable, tmp_path / "unstable")
    assert not (tmp_path / "unstable").exists()


@pytest.mark.parametrize("file", ["Makefile", "main.c", "model.h"])
def test_files_of_others_stay(file, tmp_path):
    (tmp_path / file).write_text("mine")
    with pytest.raises(ExportError, match=f"there is a {file}, and no description by tauflow"):
        to_c(tauflow.CfC(2, 3).eval(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "mine"
