import json
import re
from dataclasses import replace

import pytest
from tiny_experiment import TINY, tiny

from tauflow.errors import DataError, DataNotFoundError, SpecificationError
from tauflow.runs.job import make_record_header
from tauflow.runs.results import RunRecord
from tauflow.runs.toml_files import tomllib
from tauflow_papers.experiments.report.baseline_scores import (
    BASELINES_FILE,
    describe_baselines,
    read_baseline_scores,
    update_baseline_scores,
)
from tauflow_papers.experiments.report.grid_page import write_grid_reports
from tauflow_papers.experiments.report.protocol import (
    AGREES,
    BETTER,
    UNDECIDED,
    UNMEASURED,
    WORSE,
)
from tauflow_papers.experiments.report.results_summary import summarize_results, summarize_table
from tauflow_papers.experiments.report.summary_page import (
    make_summary_markdown,
    make_summary_page,
    write_results_summary,
)
from tauflow_papers.experiments.report.table import format_row_title, is_causal
from tauflow_papers.experiments.report.variation_results import (
    describe_variations,
    is_at_search_boundary,
    read_variations,
)
from tauflow_papers.experiments.run import result_file
from tauflow_papers.experiments.run.grid_search import make_search_jobs
from tauflow_papers.experiments.run.row_jobs import make_job
from tauflow_papers.experiments.run.run_job import Paths
from tauflow_papers.experiments.spec.grid import make_setting
from tauflow_papers.experiments.spec.load import load_experiment
from tauflow_papers.experiments.spec.parse import experiment_from_dict
from tauflow_papers.experiments.spec.variation import make_variation


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


@pytest.fixture
def surveyed(folder, tmp_path):
    def gather(text=TINY):
        specification = tmp_path / "tiny.toml"
        specification.write_text(text, encoding="utf-8")
        return summarize_results(folder, [specification])

    return gather


def add(
    folder,
    row="gru",
    *,
    seed=0,
    test=0.5,
    valid=None,
    experiment=None,
    error=None,
    epochs=None,
    setting=None,
    file="tiny",
    epoch_tests=(),
):
    """Append a run with an invented score to the results of the tiny table."""
    experiment = experiment or tiny()
    job = make_job(experiment.with_epochs(epochs), experiment.row(row), seed, setting)
    ran = job.recipe.epochs
    tests = [*epoch_tests, *[test] * (ran - len(epoch_tests))]
    history = [
        {"epoch": e + 1, "train_loss": 1.0, "valid": test, "test": tests[e]} for e in range(ran)
    ]
    scores = {
        "valid": test if valid is None else valid,
        **dict.fromkeys(("test", "last_test"), test),
        **dict.fromkeys(("best_epoch", "epochs"), ran),
        **{"seconds": 3.0 * ran, "seconds_per_epoch": 3.0, "history": tuple(history)},
    }
    known = {"status": "failed", "error": error} if error else {"status": "done", **scores}
    record = RunRecord(**make_record_header(job, "2024-05-06T07:08:09+00:00"), **known)
    result_file.append_record(folder / f"{file}.jsonl", record)


def with_eps(row):
    return (
        row if row.model is None else replace(row, model=replace(row.model, options={"eps": 0.25}))
    )


def add_varied(folder, changes, *, row="gru", seed=0, test=0.5, epochs=None):
    """Append a run of the tiny table with other settings, where reproduce --set writes it."""
    table = make_variation(tiny(), {k: v for k, v in changes.items() if k != "model.eps"})
    if "model.eps" in changes:  # no model of the tiny table has it
        table = replace(table, rows=tuple(map(with_eps, table.rows)))
    file = table.name
    add(folder, row, seed=seed, test=test, experiment=table, epochs=epochs, file=file)


def entries_of(summary):
    (table,) = summary.tables
    return {entry.row.name: entry for entry in table.entries}


def test_a_score_that_is_no_number_is_none(folder, surveyed):
    add(folder, seed=0, test=float("nan"))
    assert entries_of(surveyed())["gru"].judgement == ""
    for seed, test in enumerate((0.8, 0.81, 0.82), start=1):
        add(folder, seed=seed, test=test)
    entry = entries_of(surveyed())["gru"]
    assert (entry.seeds[0], entry.judgement) == (3, WORSE)
    assert entry.line.ours.startswith("0.81")
    add_varied(folder, {"recipe.lr": 0.5}, test=float("nan"))
    assert surveyed().tables[0].tried == ()


PRECISE = TINY.replace("std = 0.1, n = 5", "std = 0.001, n = 5")


def add_seeds(folder, tests, **options):
    for seed, test in enumerate(tests):
        add(folder, seed=seed, test=test, **options)


@pytest.mark.parametrize(
    ("tests", "judgement"),
    [  # the paper says 0.5 ± 0.001 for a squared error, so that the margin is 0.025
        ([0.505, 0.51, 0.515], AGREES),
        ([0.65, 0.66, 0.64], WORSE),
        ([0.35, 0.34, 0.36], BETTER),
        ([0.45, 0.55, 0.6], UNDECIDED),
        ([0.65, 0.66], UNMEASURED),
    ],
)
def test_rows_are_judged_by_the_protocol(folder, surveyed, tests, judgement):
    add_seeds(folder, tests)
    entry = entries_of(surveyed(PRECISE))["gru"]
    assert entry.judgement == judgement
    sign = 1 if sum(tests) > 0.5 * len(tests) else -1
    assert (entry.worse_by or sign) * sign > 0


def test_high_is_good_for_an_accuracy(folder, surveyed):
    text = PRECISE.replace('metric = "mse"', 'metric = "accuracy"')
    add_seeds(folder, (0.29, 0.3, 0.31), experiment=tiny(metric="accuracy"))
    entry = entries_of(surveyed(text))["gru"]
    assert entry.judgement == WORSE
    assert entry.worse_by == pytest.approx(20)
    assert "| -20 (-22 to -18) | worse |" in make_summary_markdown(surveyed(text))


@pytest.mark.parametrize(("test", "judgement"), [(0.5004, AGREES), (0.6, WORSE), (0.4, BETTER)])
def test_a_deviation_rounded_to_nothing_leaves_the_last_digit(folder, surveyed, test, judgement):
    add_seeds(folder, [test] * 3)
    assert (
        entries_of(surveyed(TINY.replace("std = 0.1", "std = 0.0")))["gru"].judgement == judgement
    )


def test_a_number_without_a_deviation_is_one_run(folder, surveyed):
    for seed, test in enumerate((0.9, 0.91, 0.89)):
        add(folder, "elman", seed=seed, test=test)
    entry = entries_of(surveyed())["elman"]
    assert (entry.judgement, entry.judged.interval.logarithmic) == (WORSE, True)
    assert re.search(r"\| × 1\.3 \(1\.2 to 1\.4\) \|", make_summary_markdown(surveyed()))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("bound", "metric", "test", "judgement"),
    [
        ("below = 0.4", "mse", 0.39, AGREES),
        ("below = 0.4", "mse", 0.41, WORSE),
        ("above = 0.4", "mse", 0.41, AGREES),
        ("above = 0.4", "mse", 0.39, BETTER),
        ("above = 0.4", "accuracy", 0.39, WORSE),
        ("below = 0.4", "accuracy", 0.41, BETTER),
        ('figure = "Fig. 1"', "mse", 0.41, ""),
    ],
)
def test_a_published_bound_decides(folder, surveyed, bound, metric, test, judgement):
    text = TINY.replace("mean = 0.5, std = 0.1", bound).replace(
        'metric = "mse"', f'metric = "{metric}"'
    )
    add_seeds(folder, [test] * 3, experiment=tiny(metric=metric))
    summary = surveyed(text)
    entry = entries_of(summary)["gru"]
    assert (entry.judgement, entry.worse_by) == (judgement, None)
    assert "data:image/svg" in make_summary_page(summary)
    page = make_summary_markdown(summary)
    assert "; 3 runs in " in page
    if judgement:
        keep = f"{3 if judgement == AGREES else 0} of 3 runs keep the bound"
        assert re.search(rf"\| GRU \| [<≥] \S+ \| median \S+ \| {keep} \|", page)


def test_rows_are_judged_over_splits_where_the_table_says_so(folder, surveyed):
    text = PRECISE.replace('name = "tiny"', 'name = "tiny"\njudged_over = "noise"', 1)
    add_seeds(folder, (0.5, 0.501, 0.502))
    entry = entries_of(surveyed(text))["gru"]
    assert (entry.judgement, entry.judged.why) == (UNMEASURED, "1 of 3 splits")
    add_varied(folder, {"data.noise": 0.25}, test=0.7)
    add_varied(folder, {"data.noise": 0.5}, test=0.6)
    add_varied(folder, {"recipe.lr": 0.5}, test=9.0)  # no split
    entry = entries_of(surveyed(text))["gru"]
    assert entry.judgement == UNDECIDED
    assert entry.judged.interval.difference == pytest.approx(0.1, abs=0.001)
    assert ", of 0.600 over 3 splits | undecided |" in make_summary_markdown(surveyed(text))
    table = load_experiment(folder.parent / "tiny.toml")
    (other, *_) = summarize_table(table, folder).entries
    assert other.judged == entry.judged


def test_rows_are_judged_by_validation_scores_where_the_paper_shows_these(folder, surveyed):
    for seed, valid in enumerate((0.505, 0.51, 0.515)):
        add(folder, seed=seed, test=0.9, valid=valid)
    assert entries_of(surveyed(PRECISE))["gru"].judgement == WORSE
    text = PRECISE.replace('name = "tiny"', 'name = "tiny"\nscored_part = "valid"', 1)
    summary = surveyed(text)
    assert entries_of(summary)["gru"].judgement == AGREES
    page = make_summary_markdown(summary)
    assert "Validation mean squared error" in page
    assert "| 0.510 ± 0.005 |" in page
    with pytest.raises(SpecificationError, match="must be 'test' or 'valid', got 'train'"):
        surveyed(text.replace('"valid"', '"train"'))


def test_runs_that_cannot_be_traced_are_marked(folder, surveyed):
    add_seeds(folder, (0.5, 0.51, 0.52))
    assert "§" not in make_summary_markdown(surveyed()).partition("- tables")[2].replace(", §", "")
    (folder / "traced.txt").write_text("0123456789\n")
    summary = surveyed()
    assert entries_of(summary)["gru"].untraced == 3
    assert "± 0.010 § |" in make_summary_markdown(summary)
    assert "- rows with runs that cannot be traced, §: 1" in make_summary_markdown(summary)


@pytest.mark.parametrize(("chosen", "at_an_end"), [(0, True), (1, False), (2, True)])
def test_a_choice_at_the_end_of_what_was_tried_is_seen(folder, chosen, at_an_end):
    text = TINY.replace(
        'model = { cell = "gru" }', 'model = { cell = "gru" }\nsearch.recipe.lr = [0.3, 0.1, 0.2]'
    )
    searching = experiment_from_dict(tomllib.loads(text), "tiny.toml")
    row = searching.row("gru")
    by_size = sorted(row.search, key=lambda setting: setting.recipe.lr)
    add(folder, experiment=searching, setting=by_size[chosen])
    (record,), _ = result_file.read_records(folder / "tiny.jsonl")
    assert is_at_search_boundary(searching, row, record) is at_an_end
    assert not is_at_search_boundary(
        searching, searching.row("elman"), record
    )  # which searches nothing


@pytest.mark.parametrize("where", ["part", "row"])
def test_a_row_of_another_protocol_is_not_judged_and_says_why(folder, surveyed, where):
    before = {"part": 'dataset = "pendulum"\n', "row": 'model = { cell = "gru" }\n'}[where]
    text = TINY.replace(before, f'{before}unlike = "windows across time"\n')
    add(folder, test=0.9)
    summary = surveyed(text)
    entry = entries_of(summary)["gru"]
    assert (entry.judgement, entry.worse_by) == ("", None)
    page = make_summary_markdown(summary)
    assert re.search(r"GRU.*: not judged by the published number: windows across time", page)
    assert "- rows not judged: 1\n" in page
    assert "- rows worse: 0\n" in page


def test_what_another_setting_of_a_search_is_told_with_what_was_searched(folder, surveyed):
    text = TINY.replace(
        'model = { cell = "gru" }', 'model = { cell = "gru" }\nsearch.recipe.lr = [0.01, 0.2]'
    )
    searching = experiment_from_dict(tomllib.loads(text), "tiny.toml")
    add(folder, test=0.9, experiment=searching, setting=searching.row("gru").search[1])
    add_varied(folder, {"model.hidden_size": 9}, test=0.25)  # at the row's own rate of 0.01
    remark = entries_of(surveyed(text))["gru"].remark
    assert re.search(r"hidden_size 9, lr 0.01: 0.250|lr 0.01, hidden_size 9: 0.250", remark)


def test_a_search_shows_its_best_setting_and_how_far_it_is(folder, surveyed):
    text = TINY.replace(
        'model = { cell = "gru" }', 'model = { cell = "gru" }\nsearch.recipe.lr = [0.1, 0.2, 0.3]'
    )
    searching = experiment_from_dict(tomllib.loads(text), "tiny.toml")
    row = searching.row("gru")
    for setting, test in zip(row.search[:2], (0.7, 0.5), strict=True):
        add(folder, test=test, epochs=1, experiment=searching, setting=setting)
    add(folder, seed=1, test=0.6, epochs=1, experiment=searching, setting=row.search[1])
    summary = surveyed(text)
    entry = entries_of(summary)["gru"]
    assert [record.test for record in entry.records] == [0.5, 0.6]
    assert (entry.settings, entry.epochs) == ((2, 3), (1, 2))
    page = make_summary_markdown(summary)
    assert "| settings |" in page
    assert "| lr 0.2 (2 of 3 tried) |" in page
    assert "| 0.550 ± 0.071 ‡ |" in page
    assert summary.tables[0].num_unmatched == 0
    add(folder, test=0.8, epochs=1, experiment=searching, setting=row.search[2])
    summary = surveyed(text)
    assert not entries_of(summary)["gru"].few_settings
    assert "| lr 0.2 (best of 3) |" in make_summary_markdown(summary)
    assert '<td class="">lr 0.2 (best of 3)</td>' in make_summary_page(summary)
    assert "0.071 |" in make_summary_markdown(summary)


def test_the_best_epoch_is_shown_where_a_table_asks_for_it(folder, surveyed):
    add(folder, seed=0, test=0.7, epoch_tests=[0.4])
    add(folder, seed=1, test=0.6, epoch_tests=[0.8])
    assert "best epoch" not in make_summary_markdown(surveyed())
    summary = surveyed(TINY.replace("seeds =", "best_epoch = true\nseeds =", 1))
    assert entries_of(summary)["gru"].line.best == "0.500 ± 0.141 (2)"  # a squared error
    assert "| best epoch |" in make_summary_markdown(summary)
    assert "| 0.500 ± 0.141 (2) |" in make_summary_markdown(summary)


@pytest.mark.parametrize("left", ["epochs", "settings"])
def test_what_is_left_to_run_may_still_decide(folder, surveyed, left):
    text, options = TINY.replace("mean = 0.5, std = 0.1", "below = 0.4"), {"epochs": 1}
    if left == "settings":
        grid = 'model = { cell = "gru" }\nsearch.recipe.lr = [0.1, 0.2]'
        text = text.replace('model = { cell = "gru" }', grid)
    experiment = experiment_from_dict(tomllib.loads(text), "tiny.toml")
    if left == "settings":
        options = {"setting": experiment.row("gru").search[0]}
    add_seeds(folder, [0.3] * 3, experiment=experiment, **options)
    entry = entries_of(surveyed(text))["gru"]
    assert (entry.judgement, entry.judged.why) == (UNMEASURED, f"fewer {left}")


def test_fewer_seeds_and_epochs_are_marked(folder, surveyed):
    add(folder, seed=0, epochs=1, test=0.9)
    add(folder, seed=1, epochs=1, test=0.9)
    add(folder, "elman", seed=0)
    add(folder, "elman", seed=1)
    summary = surveyed()
    gru, elman = entries_of(summary)["gru"], entries_of(summary)["elman"]
    assert (gru.seeds, gru.epochs, gru.few_seeds, gru.few_epochs) == ((2, 5), (1, 2), True, True)
    assert (elman.seeds, elman.epochs) == ((2, 2), (2, 2))
    text = make_summary_markdown(summary)
    assert "| 2 of 5 † | 1 of 2 † | 3 s |" in text
    assert "| 2 of 2 | 2 of 2 | 3 s |" in text
    # One whole run counts for more than two that were cut short.
    add(folder, seed=3, test=0.5)
    gru = entries_of(surveyed())["gru"]
    assert ([r.seed for r in gru.records], gru.epochs) == ([3], (2, 2))


def test_fewer_epochs_give_no_verdict_and_tell_the_progress(folder, surveyed):
    add_seeds(folder, (0.9, 0.91, 0.92), epochs=1)
    summary = surveyed()
    entry = entries_of(summary)["gru"]
    assert (entry.judgement, entry.worse_by) == (UNMEASURED, None)
    text = make_summary_markdown(summary)
    assert "- **GRU, not measured**: Training loss 1 in epoch 1, 1 in epoch 1." in text
    assert "- rows not measured: 1\n" in text
    assert "- rows worse: 0\n" in text


def cut_short(folder, which, *, best=1, drop=None, **recipe):
    """Let one of the runs in the file have ended after its first epoch, of so many more."""
    path = folder / "tiny.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[which].update(epochs=1, best_epoch=best, history=records[which]["history"][:1])
    for record in records:
        record["config"]["recipe"].update(recipe)
        record["config"]["recipe"].pop(drop, None)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("divergence", ["raise", "stop"])
def test_a_run_that_waited_long_enough_did_not_diverge(folder, surveyed, divergence):
    for seed in (0, 1):
        add(folder, test=0.9, seed=seed)
    cut_short(folder, 0, best=0, patience=1, on_divergence=divergence)
    assert "diverged" not in make_summary_markdown(surveyed())


def test_an_old_run_that_ended_early_did_not_diverge(folder, surveyed):
    add(folder, test=0.9)
    cut_short(folder, 0, drop="on_divergence")  # of before there was such an option
    assert "diverged" not in make_summary_markdown(surveyed())


@pytest.mark.parametrize("which", [0, 1])
def test_a_run_that_diverged_early_counts_and_is_told(folder, surveyed, which):
    for seed in (0, 1):
        add(folder, test=0.9, seed=seed)
    cut_short(folder, which, on_divergence="stop")
    summary = surveyed()
    entry = entries_of(summary)["gru"]
    # The protocol says that its best epoch counts, so it is no shorter run than the others.
    assert (entry.epochs, entry.seeds, entry.judgement) == ((2, 2), (2, 5), UNMEASURED)
    assert not entry.few_epochs
    assert "1 of 2 runs diverged, after epoch 1" in make_summary_markdown(summary)
    assert ", 1 diverged |" in make_summary_markdown(summary)


def test_runs_longer_than_published_do_not_hide_the_others(folder, surveyed):
    for seed in range(5):
        add(folder, test=0.5, seed=seed)
    add(folder, test=0.9, epochs=4)
    summary = surveyed(PRECISE)
    entry = entries_of(summary)["gru"]
    assert (entry.judgement, entry.seeds, entry.epochs) == (AGREES, (5, 5), (2, 2))
    assert summary.tables[0].num_unmatched == 1
    assert "- 1 further runs, of other settings or longer, are not shown." in make_summary_markdown(
        summary
    )
    (folder / "tiny.jsonl").unlink()
    add(folder, test=0.9, epochs=4)
    summary = surveyed()
    assert entries_of(summary)["gru"].epochs == (4, 2)
    assert summary.tables[0].num_unmatched == 0


def test_the_progress_told_is_that_of_the_first_seed(folder, surveyed):
    for seed in (1, 0):  # as two processes may finish
        add(folder, test=0.9, epochs=1, seed=seed)
    path = folder / "tiny.jsonl"
    second, first = (json.loads(line) for line in path.read_text().splitlines())
    first["history"][0]["train_loss"] = 3.0
    path.write_text("".join(json.dumps(record) + "\n" for record in (second, first)))
    assert entries_of(surveyed())["gru"].remark == "Training loss 3 in epoch 1, 3 in epoch 1."


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"there is no folder of results .*absent"):
        summarize_results(tmp_path / "absent")


def test_remarks_stand_below_rows_that_are_off(folder, surveyed):
    add_seeds(folder, (0.9, 0.91, 0.92))
    add(folder, "elman")
    summary = surveyed()
    assert "- **GRU, worse**: not looked into yet" in make_summary_markdown(summary)
    assert make_summary_page(summary).count("not looked into yet") == 1
    (folder / "remarks.toml").write_text('[tiny]\ngru = "The <b> gate."\nelman = "As it should."')
    summary = surveyed()
    text, page = make_summary_markdown(summary), make_summary_page(summary)
    assert "- **GRU, worse**: The <b> gate." in text
    assert "- **Elman <b>, not measured**: As it should." in text
    assert "not looked into yet" not in text + page
    assert "The &lt;b&gt; gate." in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tyni]\ngru = "x"', r"there is no table 'tyni'\. Did you mean 'tiny'"),
        ('[tiny]\ngro = "x"', r"tiny has no row 'gro'\. Did you mean 'gru'"),
        ("[tiny]\ngru = 1", "'tiny' must be a table of texts by row"),
        ('tiny = "x"', "'tiny' must be a table of texts by row"),
        ('[tables]\ntyni = "x"', r"there is no table 'tyni'\. Did you mean 'tiny'"),
    ],
)
def test_remarks_that_nobody_would_see_are_refused(folder, surveyed, text, message):
    (folder / "remarks.toml").write_text(text)
    with pytest.raises(SpecificationError, match=message):
        surveyed()


def test_why_tables_have_no_results_is_said_once_for_those_of_a_reason(folder, surveyed):
    add(folder)
    reasons = {"ltc-table-4": "no <data>", "ltc-table-5": "no <data>", "ltc-table-6": "soon"}
    lines = [f'{name} = "{reason}"' for name, reason in reasons.items()]
    lines += ['tiny = "there are some"', 'ltc-table-2 = "computed"']
    (folder / "remarks.toml").write_text("\n".join(["[tables]", *lines]), encoding="utf-8")
    summary = surveyed()
    assert [text.split()[3] for text in summary.warnings if "says why" in text] == [
        "ltc-table-2",
        "tiny",
    ]
    text = make_summary_markdown(summary)
    assert "- tables without results: ltc-table-4, ltc-table-5: no <data>\n" in text
    assert "- tables without results: ltc-table-6: soon\n" in text
    others = re.search(r"- tables without results: (cfc-table-4, .*)", text)[1]
    assert "ltc-table-3" in others
    assert not any(name in others for name in reasons)
    assert "<p>ltc-table-4, ltc-table-5: no &lt;data&gt;</p>" in make_summary_page(summary)


def test_what_belongs_to_no_row_is_counted_and_failures_are_named(folder, surveyed):
    add(folder)
    row = tiny().row("gru")
    row = replace(row, recipe=make_setting(row, {"recipe.lr": 0.3}).recipe)
    add(folder, experiment=replace(tiny(), rows=(row,)))
    add(folder, seed=1, error="NonFiniteError: the loss is nan")
    add(folder, seed=2, error="OSError: the disk is full")
    add(folder, seed=2)  # tried again
    (folder / "stranger.jsonl").write_text("")
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "speed.md").write_text("fast")
    (folder / "tiny.md").write_text("the table's own report")
    summary = surveyed()
    (table,) = summary.tables
    assert [r.seed for r in entries_of(summary)["gru"].records] == [0, 2]
    assert (table.num_unmatched, [r.seed for r in table.failures]) == (1, [1])
    text = make_summary_markdown(summary)
    assert "1 further runs, of other settings or longer, are not shown." in text
    assert "- gru, seed 1, failed: NonFiniteError: the loss is nan" in text
    assert "full" not in text
    assert "Warning: stranger.jsonl belongs to no table" in text
    assert summary.documents == ("benchmarks/speed.md",)
    assert "Not run: Elman <b> 0.700." in text
    assert "Not implemented yet: Model of the future 0.100." in text


def test_what_needs_no_learning_stands_below_the_table(folder, surveyed):
    add(folder)
    assert "Without learning" not in make_summary_markdown(surveyed())
    lines = []
    update_baseline_scores([tiny()], folder / BASELINES_FILE, say=lines.append)
    (line,) = describe_baselines(tiny(), read_baseline_scores(folder / BASELINES_FILE))
    assert re.fullmatch(
        r"Without learning: persistence [\d.]+; training mean [\d.]+; the last change again [\d.]+"
        r"; next input, looks ahead [\d.]+; interpolation, looks ahead [\d.]+\.",
        line,
    )
    summary = surveyed()
    assert line in make_summary_markdown(summary)
    assert line in make_summary_page(summary)
    for path in write_grid_reports(summary.tables[0].grid, Paths(folder, folder)):
        assert line in path.read_text(encoding="utf-8")
    assert len(lines) == 1
    update_baseline_scores(
        [tiny()], folder / BASELINES_FILE, say=lines.append
    )  # it is there already
    assert len(lines) == 1


def test_a_damaged_file_of_trivial_scores_is_named(folder, surveyed):
    add(folder)
    for text in ("{", "[1]", '[{"dataset": "x"}]', '[{"dataset": 1, "options": {}, "metric": 1}]'):
        (folder / BASELINES_FILE).write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"baselines\.json holds no scores .*--baselines"):
            surveyed()


def test_rows_that_look_ahead_say_so():
    spline, kept_rows = (
        [row for row in load_experiment("gnode-table-5").rows if row.part.name == part]
        for part in ("", "kept")
    )
    assert all("(looks ahead)" in format_row_title(row) for row in spline)
    assert not any("(looks ahead)" in format_row_title(row) for row in kept_rows)
    by_default = load_experiment("gnode-table-4")  # splines are its data set's default
    assert not any(is_causal(row) for row in by_default.rows)
    by_model = {row.name: is_causal(row) for row in load_experiment("cfc-table-5").rows}
    assert not by_model["latent-ode-ode/observed"]
    assert not by_model["seft/observed"]
    assert by_model["cfc"]
    both_ways = TINY.replace('cell = "gru"', 'cell = "gru", bidirectional = true')
    (row, *_) = experiment_from_dict(tomllib.loads(both_ways), "tiny").rows
    assert not is_causal(row)
    assert is_causal(tiny().rows[0])


def test_the_same_results_give_the_same_bytes_and_need_nothing_else(folder, surveyed):
    for seed, test in enumerate((0.5, 0.9, 0.7)):
        add(folder, seed=seed, test=test)
    first = [path.read_bytes() for path in write_results_summary(surveyed(), folder)]
    again = [path.read_bytes() for path in write_results_summary(surveyed(), folder)]
    assert first == again
    page = first[1].decode()
    assert page.count("data:image/svg+xml;base64,") == 3  # at a glance, beside published, curves
    assert "<script" not in page
    assert not re.search(r"""(src|href)=["'](http|//|file|/)|url\(http|@import""", page)
    assert str(folder) not in page + first[0].decode()


def test_runs_with_other_settings_are_told_below_their_row(folder, surveyed):
    add_seeds(folder, (0.9, 0.91, 0.92))
    for seed, test in enumerate((0.5, 0.7)):
        add_varied(folder, {"recipe.lr": 0.5}, seed=seed, test=test)
    add_varied(folder, {"model.hidden_size": 9}, test=0.25)
    summary = surveyed()
    remark = entries_of(summary)["gru"].remark
    assert "not looked into yet. With other settings: " in remark
    assert "lr 0.5: 0.600 ± 0.141 (2 runs)" in remark
    assert "hidden_size 9: 0.250 (1 run)" in remark
    assert not summary.warnings
    assert remark in make_summary_markdown(summary)
    assert "- runs with other settings: 3, " in make_summary_markdown(summary)
    assert "With other settings" not in entries_of(summary)["elman"].remark


def test_fewer_epochs_of_another_setting_are_part_of_what_is_different(folder, surveyed):
    add(folder, test=0.9)
    add_varied(folder, {"recipe.lr": 0.5}, epochs=1, test=0.5)
    assert re.search(r"lr 0.5.*epochs 1|epochs 1.*lr 0.5", entries_of(surveyed())["gru"].remark)


def test_runs_with_other_settings_are_nothing_without_a_run_as_published(folder, surveyed):
    add_varied(folder, {"recipe.lr": 0.5}, test=0.5)
    assert not surveyed().tables
    assert not surveyed().warnings


def test_a_run_counts_once_and_only_for_what_it_says(folder, surveyed):
    add(folder, test=0.9)
    add_varied(folder, {"recipe.lr": 0.5}, test=0.5)
    (path,) = folder.glob("tiny-with-*.jsonl")
    line = json.loads(path.read_text(encoding="utf-8"))
    del line["config"]["recipe"]["warmup_steps"]  # as if made before there was such an option
    path.write_text(f"{json.dumps(line)}\n" * 2, encoding="utf-8")
    (folder / "tiny-with-other-words.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
    (folder / "tiny-with-folder.jsonl").mkdir()
    remark = entries_of(surveyed())["gru"].remark
    assert remark.endswith("With other settings: lr 0.5: 0.500 (1 run).")


def test_settings_of_one_name_are_told_apart(folder, surveyed):
    add(folder, test=0.9)
    add_varied(folder, {"recipe.eps": 0.5, "model.eps": 0.25}, test=0.5)
    assert "model.eps 0.25, recipe.eps 0.5: 0.500" in entries_of(surveyed())["gru"].remark


def test_a_table_may_have_with_in_its_name(folder, tmp_path):
    names = ("tiny", "tiny-with-gap")
    for name in names:
        text = TINY.replace('name = "tiny"', f'name = "{name}"', 1).replace("0.01", "0.03")
        text = TINY if name == "tiny" else text
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        table = load_experiment(tmp_path / f"{name}.toml")
        add(folder, test=0.9, experiment=table, file=name)
    results = summarize_results(folder, [tmp_path / f"{name}.toml" for name in names])
    assert not results.warnings
    assert [table.experiment.name for table in results.tables] == list(names)
    assert not any(table.tried for table in results.tables)


SEARCHING = """
[row.search]
{data}
recipe = {{ lr = [0.1, 0.01] }}
"""


def searching(data="", **recipe):
    """Return the tiny table, whose first row searches two rates."""
    table = tomllib.loads(TINY)
    table["recipe"] = {**table["recipe"], **recipe}
    (row,) = [row for row in table["row"] if row["name"] == "gru"]
    row["search"] = tomllib.loads(SEARCHING.format(data=data))["row"]["search"]
    return experiment_from_dict(table, "tiny.toml")


def told_of(folder, experiment, *, searched, chosen):
    """Return what is told of a row with another width, of scores (valid, criterion, test)."""
    table = make_variation(experiment, {"model.hidden_size": 9})
    row = table.rows[0]
    jobs = [
        *make_search_jobs(table, row),
        *(make_job(table, row, s, row.search[0]) for s in (0, 1)),
    ]
    for job, (valid, criterion, test) in zip(jobs, [*searched, *chosen], strict=True):
        history = {"epoch": 1, "train_loss": 1.0, "valid": valid, "test": test}
        history |= {} if criterion is None else {"criterion": criterion}
        record = RunRecord(
            **make_record_header(job, "2024-05-06T07:08:09+00:00"),
            **{"status": "done", "valid": valid, "test": test, "last_test": test, "best_epoch": 1},
            **{"epochs": job.recipe.epochs, "seconds": 1.0, "history": (history,)},
        )
        result_file.append_record(folder / f"{table.name}.jsonl", record)
    variations, _ = read_variations(experiment, folder, [experiment.name])
    return describe_variations(variations, experiment.rows[0], experiment.ddof)


def test_another_setting_of_a_row_that_searches_is_the_one_that_it_would_take(folder):
    selected = searching(select_by="mae")
    scores = [(0.5, 0.1, 0.6), (0.3, 0.2, 0.2)]  # the first is chosen by the criterion
    text = told_of(folder, selected, searched=scores, chosen=[scores[0], (0.6, 0.1, 0.62)])
    assert "lr 0.1: 0.610 ± 0.014 (2 runs)" in text


def test_scores_on_the_data_of_a_search_stay_unseen(folder):
    other = searching(data="options = { noise = 0.5 }")
    easy = [(0.05, None, 0.06), (0.1, None, 0.02)]
    text = told_of(folder, other, searched=easy, chosen=[(0.3, None, 0.2), (0.35, None, 0.22)])
    assert "lr 0.1" in text
    assert "0.210 ± 0.014 (2 runs)" in text
    assert "noise" not in text
