import pytest

import tauflow

TINY_RUN = ("--model", "elman", "--hidden-size", "4", "--epochs", "1")


def test_version_and_help(call):
    assert call("--version").output.strip() == tauflow.__version__
    text = call("--help").output
    for command in ("data", "models", "run", "reproduce", "search", "report", "show"):
        assert command in text


def test_help_says_that_a_table_is_written(call):
    assert "TABLE.md and TABLE.html" in " ".join(call("show", "--help").output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "pendulun"], "Did you mean 'pendulum'"),
        (["run", "pendulum", "--model", "lstn"], "Did you mean 'lstm'"),
        (["run", "pendulum", "--model", "seft"], "'seft' answers once per sequence, but pendulum"),
        (["run", "pendulum", "--model", "latent-ode"], "Did you mean 'latent-ode-"),
        (["run", "pendulum", "--option", "modus"], "is not of the form key=value"),
        (["run", "pendulum", "--option", "mod=pure"], "Did you mean 'mode'"),
        (["run", "pendulum", "--option", "hidden_size=3"], "is given beside the options"),
        (["run", "pendulum", "--resume"], "no run with these arguments to resume"),
        (["run", "pendulum", *TINY_RUN, "--runs", "file/x"], "Not a directory"),
        (["reproduce", "ltc-tabel-6"], "Did you mean 'ltc-table-6'"),
        (["reproduce", "cfc-table-6", "--models", "skip-lstm"], "only the number is quoted"),
        (["reproduce", "ltc-table-6", "--budget", "30"], "'30' is not a time span"),
        (["show", "nothing"], "there is no run or table 'nothing'"),
        (["data", "get", "walker3d"], "Did you mean 'walker2d'"),
    ],
)
def test_errors_are_one_message_on_standard_error(call, tmp_path, words, message):
    (tmp_path / "file").touch()
    result = call(*words, code=1)
    assert result.stderr.startswith("tauflow: ")
    assert message in result.stderr
    assert "Traceback" not in result.output
