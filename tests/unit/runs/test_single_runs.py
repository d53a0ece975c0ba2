from dataclasses import replace

import pytest

from tauflow.errors import ArgumentError, CheckpointError, OptionError, UnknownNameError
from tauflow.runs.report.page import write_run_report
from tauflow.runs.run import DEFAULT_RECIPE, Run
from tauflow.runs.task import choose_run_directory, run_task

SMALL = {"sizes": (12, 6, 6), "steps": 5}
SHORT = replace(DEFAULT_RECIPE, epochs=2, batch_size=6)


def short_run(tmp_path, **changes):
    options = {"hidden_size": 3, "recipe": SHORT, "dataset_options": SMALL, "progress": False}
    return run_task(Run("pendulum", "gru", runs_dir=tmp_path, **{**options, **changes}))


def test_a_run_ends_with_a_report(tmp_path):
    run = short_run(tmp_path)
    assert run.record.status == "done"
    names = [name for name, _ in run.baselines]
    assert names == ["persistence", "training mean"]
    page = write_run_report(run).read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == 2
    assert f"{run.record.parameters:,}" in page


@pytest.mark.slow
def test_runs_do_not_share_a_directory_and_the_latest_is_resumed(tmp_path):
    first, second = short_run(tmp_path), short_run(tmp_path)
    assert first.directory != second.directory
    assert first.record.test == second.record.test
    again = short_run(tmp_path, resume=True)
    assert again.directory == second.directory
    assert again.record.test == second.record.test


@pytest.mark.slow
def test_a_finished_run_goes_on_with_more_epochs(tmp_path):
    short_run(tmp_path)
    more = replace(SHORT, epochs=3)
    longer = short_run(tmp_path, recipe=more, resume=True)
    again = short_run(tmp_path, recipe=more)
    assert longer.directory != again.directory
    seconds = [row["seconds"] for row in longer.record.history]
    assert seconds[:2] == [
        row["seconds"] for row in short_run(tmp_path, resume=True).record.history
    ]
    assert (longer.record.epochs, longer.record.test) == (3, again.record.test)


def test_a_run_goes_on_whichever_folder_the_shorter_one_has(tmp_path):
    first, second = short_run(tmp_path), short_run(tmp_path)
    assert second.directory.name == f"{first.directory.name}-2"

    def seconds_of(epochs):
        longer = short_run(tmp_path, recipe=replace(SHORT, epochs=epochs), resume=True)
        return [row["seconds"] for row in longer.record.history][:2]

    assert seconds_of(3) == [row["seconds"] for row in second.record.history]  # the latest
    for record in tmp_path.rglob("record.json"):
        if record.parent != second.directory:  # as of runs that were killed
            record.unlink()
    assert seconds_of(4) == [row["seconds"] for row in second.record.history]


def test_a_refused_run_leaves_no_folder(tmp_path):
    short_run(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OptionError):
        short_run(tmp_path, options={"append": True})
    with pytest.raises(ArgumentError):  # which the training refuses, once the model is built
        short_run(tmp_path, recipe=replace(SHORT, class_weights=(1.0, 2.0)))
    assert sorted(tmp_path.rglob("*")) == before


def test_there_must_be_a_run_to_resume(tmp_path):
    short_run(tmp_path)
    with pytest.raises(CheckpointError, match=r"no run with these arguments to resume.*gru-seed0"):
        short_run(tmp_path, resume=True, seed=1)
    assert choose_run_directory(tmp_path / "new", resume=False) == tmp_path / "new"
    assert choose_run_directory(tmp_path / "new", resume=False) == tmp_path / "new-2"


def test_folders_that_were_removed_leave_no_doubt_about_the_latest(tmp_path):
    made = [choose_run_directory(tmp_path / "run", resume=False) for _ in range(3)]
    assert [path.name for path in made] == ["run", "run-2", "run-3"]
    made[0].rmdir()
    assert choose_run_directory(tmp_path / "run", resume=True) == made[2]
    assert choose_run_directory(tmp_path / "run", resume=False) == tmp_path / "run-4"


def test_seeds_have_an_end(tmp_path):
    with pytest.raises(ArgumentError, match=r"seed must be less than 2\*\*64"):
        short_run(tmp_path, seed=2**64)


def test_unknown_names_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'gru'"):
        run_task(Run("pendulum", "gruu", runs_dir=tmp_path / "runs"))
    with pytest.raises(UnknownNameError, match="Did you mean 'pendulum'"):
        run_task(Run("pendulun", "gru", runs_dir=tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_unknown_options_are_refused(tmp_path):
    with pytest.raises(OptionError, match=r"no option 'append'\. Did you mean 'append_dt'"):
        short_run(tmp_path, options={"append": True})
    with pytest.raises(OptionError, match="wiring must be a description"):
        short_run(tmp_path, options={"wiring": "auto-ncp"})
