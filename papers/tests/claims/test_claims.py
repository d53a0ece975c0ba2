"""Claims of the papers: their files, their rules, and that verdicts follow from stored results."""

import ast
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tauflow.errors import SpecificationError, UnknownNameError
from tauflow.runs.job import make_record_header
from tauflow.runs.results import RunRecord
from tauflow_papers.claims.claim import (
    PAPERS,
    VERDICTS,
    Claim,
    judge_claim,
    judge_claims,
    load_claims,
)
from tauflow_papers.claims.expression import evaluate, fill_in, move_bounds
from tauflow_papers.claims.page import make_changes, make_pages
from tauflow_papers.claims.stored import (
    MissingResultError,
    StoredResults,
    compute_exponent,
    count_wins,
)
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.run.result_file import append_record
from tauflow_papers.experiments.run.row_jobs import make_job

ROOT = Path(__file__).parents[3]
STORED = StoredResults(ROOT / "papers" / "results", ROOT / "docs" / "gallery")
CLAIMS = load_claims()
EVERY = [claim for claims in CLAIMS.values() for claim in claims]


@pytest.fixture(scope="module")
def judged():
    return {paper: judge_claims(claims, STORED) for paper, claims in CLAIMS.items()}


def test_bounds_are_moved_one_at_a_time_and_nothing_else_is():
    rule = "min(a[1], found('x', 2)) > 10 * b and 0.9 < n < 1.5 and count == 8 and c > 0"
    moved = move_bounds(rule)
    assert len(moved) == 6
    numbers = [
        [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
        for text in moved
    ]
    changed = [sorted({*number} - {1, "x", 2, 8, 0}) for number in numbers]
    expected = [[0.9, 1.5, 8.0], [0.9, 1.5, 12.0], [0.88, 1.5, 10], [0.92, 1.5, 10]]
    expected += [[0.9, 1.2, 10], [0.9, 1.8, 10]]
    for numbers_changed, other in zip(changed, expected, strict=True):
        assert numbers_changed == pytest.approx([value for value in other if value != 8.0])


@pytest.mark.parametrize(
    ("value", "depends"), [(10.0, False), (5.9, True), (5.1, True), (1, False)]
)
def test_a_verdict_near_its_bound_is_marked(value, depends, tmp_path):
    claim = Claim("c", "says", "here", command="x", values={"a": str(value)}, holds="a > 5.5")
    claim_ = judge_claim(claim, StoredResults(tmp_path, tmp_path))
    assert claim_.has_bounds
    assert claim_.depends == depends
    text = write({"cfc": [claim_]})
    assert f"1 verdict came from rules with bounds; {int(depends)} of them" in text


def write(judged):
    """Return all pages in one."""
    return "\n".join(make_pages(judged).values())


def test_there_are_claims_of_every_paper():
    assert CLAIMS.keys() == PAPERS.keys()
    assert len(EVERY) >= 60
    assert all(CLAIMS.values())


def test_every_decided_claim_says_what_was_measured(judged):
    for claims in judged.values():
        for claim in claims:
            if claim.verdict in VERDICTS[:3]:
                assert claim.measured, claim.claim.name
            if claim.verdict in VERDICTS[1:]:
                assert claim.claim.reason or claim.missing or claim.lacks, claim.claim.name


@pytest.mark.parametrize("claim", EVERY, ids=[claim.name for claim in EVERY])
def test_reasons_have_no_typed_results(claim):
    """Numbers come from expressions, but for constants of theory and those that a paper says."""
    typed = re.findall(r"\d+\.\d+|\d+ %", re.sub(r"\{[^{}]*\}", "", claim.reason))
    assert set(typed) <= {"0.731", "1.34", "0.01"}


def test_the_page_is_the_one_of_today(judged):
    """Written by ``tauflow claims --page``, see there."""
    pages = make_pages(judged)
    assert {page.stem for page in (ROOT / "docs").glob("claims*.md")} == pages.keys()
    for stem, text in pages.items():
        assert (ROOT / "docs" / f"{stem}.md").read_text("utf-8") == text


@pytest.mark.parametrize("test", sorted({claim.test for claim in EVERY if claim.test}))
def test_tests_that_decide_claims_exist(test):
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * x ** 2", 19.0),
        ("-x < 0 < x", True),
        ("x > 5 or not x == 3", False),
        ("x > 5 or x == 3 and x != 4", True),
        ("[x, 4][1]", 4),
        ("double(x, by=4)", 12.0),
        ("table['a'] / 2", 1.0),
    ],
)
def test_expressions(text, value):
    functions = {"double": lambda x, by=2: by * x}
    assert evaluate(text, functions, {"x": 3.0, "table": {"a": 2.0}}) == value


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("1 +", "no expression"),
        ("y", "no 'y'. Known: x"),
        ("open('file')", "no 'open'. Known: double"),
        ("x.real", "not an expression"),
        ("(lambda: 1)()", "not an expression"),
        ("[z for z in x]", "not an expression"),
        ("x // 2", "not an expression"),
    ],
)
def test_other_expressions_are_refused(text, match):
    with pytest.raises(SpecificationError, match=match):
        evaluate(text, {"double": lambda x: 2 * x}, {"x": 3.0})


def test_texts_are_filled_in():
    assert fill_in("{x:.1f} of {t['a'] + 1}", {}, {"x": 2.34, "t": {"a": 1}}) == "2.3 of 2"
    assert fill_in("more: {x > 2}, less: {x < 2}", {}, {"x": 2.34}) == "more: yes, less: no"


def test_growth_and_wins_by_hand():
    assert math.isclose(compute_exponent({"1": 3.0, "2": 12.0, "4": 48.0}), 2.0)
    assert count_wins({"1": 2, "2": 5}, {"1": 1, "2": 6}, {"1": 0, "2": 0}) == 1


def write_study(folder, **numbers):
    (folder / "claims").mkdir(exist_ok=True)
    (folder / "claims" / "one.json").write_text(json.dumps({"numbers": numbers}), "utf-8")


def example(**changes):
    return Claim(
        **{
            "name": "a",
            "says": "ten times as fast",
            "where": "Table 1",
            "command": "tauflow claims --measure one",
            "values": {"ratio": "study('one', 'slow') / study('one', 'fast')"},
            "measured": "{ratio:.0f} times",
            "holds": "ratio >= 10",
            "in_part": "ratio >= 2",
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("slow", "verdict"), [(10, "holds"), (3, "holds in part"), (1, "does not hold")]
)
def test_the_rule_gives_the_verdict(tmp_path, slow, verdict):
    write_study(tmp_path, slow=slow, fast=1)
    judged_claim = judge_claim(example(), StoredResults(tmp_path, tmp_path))
    assert (judged_claim.verdict, judged_claim.measured) == (verdict, f"{slow} times")


def test_without_the_result_nothing_is_measured(tmp_path):
    stored = StoredResults(tmp_path, tmp_path)
    judged_claim = judge_claim(example(), stored)
    assert (judged_claim.verdict, judged_claim.measured) == ("not measured yet", "")
    assert "one.json" in judged_claim.missing
    with pytest.raises(MissingResultError, match="has no runs of ltc"):
        stored.mean("ltc-table-6", "ltc")


def test_every_missing_row_is_named_and_what_there_is_is_shown(tmp_path):
    add_runs(tmp_path, "ltc", [2.0, 2.2])
    values = {
        **ROWS["values"],
        "c": "min(means('ltc-table-6', '{}', ['lstm', 'ct-gru']))",
        "d": "b - mean('ltc-table-6', 'ct-rnn')",
    }
    text = "{a:.1f}, {b:.1f}, {c / a:.1f}, {d:.1f}"
    claim = example(**{**ROWS, "values": values, "measured": text})
    judged_claim = judge_claim(claim, StoredResults(tmp_path, tmp_path))
    assert judged_claim.missing == "ltc-table-6 has no runs of lstm, ct-gru, ct-rnn"
    assert judged_claim.measured == "2.1, –, –, –"
    assert judged_claim.evidence == "1 row of ltc-table-6 (2 seeds)"


def test_the_evidence_of_a_verdict_is_named(tmp_path):
    add_runs(tmp_path, "ltc", [2.0, 2.01, 2.02])
    add_runs(tmp_path, "lstm", [2.5, 2.51, 2.52, 2.53])
    judged_claim = judge_claim(example(**ROWS), StoredResults(tmp_path, tmp_path))
    assert judged_claim.evidence == "2 rows of ltc-table-6 (3 to 4 seeds)"
    assert f"From {judged_claim.evidence}." in write({"ltc": [judged_claim]})


def test_runs_that_failed_or_stopped_early_count_as_diverged(tmp_path):
    table = load_experiment("ltc-table-6")
    planned = table.row("ltc-rk4").recipe.epochs
    cut = table.with_epochs(5)
    for seed, (experiment, epochs, error) in enumerate(
        [
            (table, planned, None),
            (table, 3, None),
            (table, None, "NonFiniteError: the state overflows"),
            (table, None, "MemoryError"),
            (cut, 2, None),
            (table, planned, None),
        ]
    ):
        job = make_job(experiment, experiment.row("ltc-rk4"), seed)
        result = {"error": error} if error else {"valid": 1.0, "test": 1.0, "epochs": epochs}
        record = RunRecord(
            **make_record_header(job, "2026-01-01T00:00:00+00:00"),
            status="failed" if error else "done",
            **result,
        )
        append_record(tmp_path / "ltc-table-6.jsonl", record)
    other = replace(record, seed=9, status="failed", error="NonFiniteError", config_hash="0" * 16)
    append_record(tmp_path / "ltc-table-6.jsonl", other)  # of other settings
    stored = StoredResults(tmp_path, tmp_path)
    assert stored.diverged("ltc-table-6", "ltc-rk4") == 0.5
    assert not stored.incomplete
    stored.runs("ltc-table-6", "ltc-rk4")
    assert stored.sources == {"ltc-table-6": {"ltc-rk4": 4}}


def test_rows_agree_if_the_report_says_so(tmp_path):
    published = load_experiment("ltc-table-6").row("ltc").published.mean
    add_runs(tmp_path, "ltc", [published + 1e-4 * seed for seed in (-1, 0, 1)])
    add_runs(tmp_path, "ct-rnn", [1.0, 3.0, 9.0])
    add_runs(tmp_path, "lstm", [99.0, 99.01, 99.02])
    stored = StoredResults(tmp_path, tmp_path)
    assert stored.agree("ltc-table-6", ["ltc"])
    assert not stored.agree("ltc-table-6", ["ct-rnn", "lstm"])
    assert not stored.incomplete
    assert not stored.agree("ltc-table-6", ["ltc", "ct-rnn"])
    assert stored.incomplete == {"ltc-table-6, ct-rnn": "undecided with 3 seeds"}


def test_claims_of_an_empty_folder_are_not_measured(tmp_path):
    stored = StoredResults(tmp_path, tmp_path)
    every = [claim for of_paper in load_claims().values() for claim in of_paper]
    for judged_claim in judge_claims(every, stored):
        if judged_claim.claim.holds:
            assert (judged_claim.verdict, judged_claim.measured) == ("not measured yet", "")


def test_reasons_are_filled_in_and_decide_nothing(tmp_path):
    """What only a reason reads explains: too few runs of it do not take the verdict away."""
    write_study(tmp_path, slow=10, fast=1)
    add_runs(tmp_path, "ltc", [2.0])
    stored = StoredResults(tmp_path, tmp_path)
    text = "an LTC has {mean('ltc-table-6', 'ltc'):.1f}, {ratio:.0f}"
    judged_claim = judge_claim(example(reason=text), stored)
    assert (judged_claim.verdict, judged_claim.reason) == ("holds", "an LTC has 2.0, 10")
    other = judge_claim(example(reason="{mean('ltc-table-6', 'lstm'):.1f}"), stored)
    assert other.verdict == "holds"
    assert other.reason == "What would explain it is not stored: ltc-table-6 has no runs of lstm."


def test_many_rows_that_lack_the_same_are_counted(tmp_path):
    rows = ["ltc", "lstm", "ct-rnn", "ct-gru"]
    for row in rows:
        add_runs(tmp_path, row, [2.0, 2.5])
    means = {f"a{k}": f"mean('ltc-table-6', '{row}')" for k, row in enumerate(rows)}
    claim = example(values=means, measured="", holds="a0 > 1", in_part="")
    stored = StoredResults(tmp_path, tmp_path)
    assert judge_claim(claim, stored).lacks == "4 rows of ltc-table-6: 2 of 3 seeds"
    several = example(
        values={"a": "valids('ltc-table-6', 'ct-{}', ['rnn', 'gru'])"},
        measured="{a['rnn']}",
        holds="len(a) == 2",
        in_part="",
    )
    judged_claim = judge_claim(several, stored)
    assert judged_claim.measured == "2.25"
    assert judged_claim.lacks.startswith("ltc-table-6, ct-rnn: 2 of 3 seeds; ltc-table-6, ct-gru: ")


def test_a_study_without_the_number_is_missing(tmp_path):
    write_study(tmp_path, slow=10)
    judged_claim = judge_claim(example(), StoredResults(tmp_path, tmp_path))
    assert (judged_claim.verdict, judged_claim.missing) == (
        "not measured yet",
        "study one has no fast",
    )


def test_a_wrong_expression_names_its_claim(tmp_path):
    write_study(tmp_path, slow=1, fast=0)
    with pytest.raises(SpecificationError, match=r"claim 'a': ratio = .*ZeroDivisionError"):
        judge_claim(example(), StoredResults(tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"verdict": "holds"}, "has a rule .*: leave out verdict = 'holds'"),
        ({"holds": "", "verdict": "hold"}, "not one of holds, .* Did you mean 'holds'"),
        ({"holds": "", "verdict": "holds"}, "nothing decides 'holds'"),
        ({"command": ""}, "no command"),
    ],
)
def test_claims_that_cannot_be_checked_are_refused(changes, match):
    with pytest.raises(SpecificationError, match=match):
        example(**changes)


def test_unknown_papers_are_refused():
    with pytest.raises(UnknownNameError, match="Known: ltc, "):
        load_claims("ltv")


ROWS = {
    "values": {"a": "mean('ltc-table-6', 'ltc')", "b": "mean('ltc-table-6', 'lstm')"},
    "measured": "{a:.1f}, {b:.1f}",
    "holds": "ahead('ltc-table-6', 'ltc', ['lstm'])",
    "in_part": "a < b",
}


def add_runs(folder, row, tests):
    table = load_experiment("ltc-table-6")
    for seed, test in enumerate(tests):
        job = make_job(table, table.row(row), seed)
        record = RunRecord(
            **make_record_header(job, "2026-01-01T00:00:00+00:00"),
            **{"status": "done", "valid": test, "test": test, "epochs": job.recipe.epochs},
        )
        append_record(folder / "ltc-table-6.jsonl", record)


@pytest.mark.parametrize(
    ("ltc", "lstm", "verdict"),
    [
        ([2.0, 2.01, 2.02], [2.5, 2.51, 2.52], "holds"),
        ([2.0, 2.3, 2.6], [2.5, 2.51, 2.52], "holds in part"),
        ([2.6, 2.61, 2.62], [2.5, 2.51, 2.52], "does not hold"),
        ([2.0, 2.01, 2.02], [2.5, 2.51], "not measured yet"),
    ],
)
def test_rows_without_enough_seeds_decide_nothing(tmp_path, ltc, lstm, verdict):
    add_runs(tmp_path, "ltc", ltc)
    add_runs(tmp_path, "lstm", lstm)
    judged_claim = judge_claim(example(**ROWS), StoredResults(tmp_path, tmp_path))
    assert judged_claim.verdict == verdict
    assert judged_claim.lacks == ("" if len(lstm) > 2 else "ltc-table-6, lstm: 2 of 3 seeds")
    assert judged_claim.measured.startswith(f"{ltc[1]:.1f}, ")
    page = write({"ltc": [judged_claim]})
    assert ("A verdict needs more of ltc-table-6, lstm: 2 of 3 seeds." in page) == bool(
        judged_claim.lacks
    )


def test_the_share_of_rows_that_one_is_better_than_is_counted(tmp_path):
    for row, tests in {
        "ltc": [2.0, 2.01, 2.02],
        "lstm": [2.5, 2.51, 2.52],
        "ct-rnn": [2.0, 2.2, 2.1],
    }.items():
        add_runs(tmp_path, row, tests)
    stored = StoredResults(tmp_path, tmp_path)
    assert stored.share_beaten("ltc-table-6", "ltc", ["lstm", "ct-rnn"]) == 0.5
    assert not stored.ahead("ltc-table-6", "ltc", ["lstm", "ct-rnn"])


def test_comparisons_of_a_claim_are_corrected_together(tmp_path):
    add_runs(tmp_path, "ltc", [2.0, 2.1, 2.2])
    for row in ("lstm", "ct-rnn", "neural-ode"):  # each is behind with p = 0.035
        add_runs(tmp_path, row, [2.2, 2.3, 2.4])
    stored = StoredResults(tmp_path, tmp_path)
    assert stored.ahead("ltc-table-6", "ltc", ["lstm"])
    single = {"values": {"a": "ahead('ltc-table-6', 'ltc', ['lstm'])"}, "holds": "a", "in_part": ""}
    alone = example(**single, measured="{a}")
    assert judge_claim(alone, stored).verdict == "holds"
    three = {row[0]: f"ahead('ltc-table-6', 'ltc', ['{row}'])" for row in ("lstm", "neural-ode")}
    rule = "l and n and ahead('ltc-table-6', 'ltc', ['ct-rnn'])"
    together = example(values=three, measured="{l}", holds=rule, in_part="l or n")
    judged_together = judge_claim(together, stored)
    assert (judged_together.verdict, judged_together.measured) == ("does not hold", "no")


def test_runs_of_a_variation_need_seeds_and_epochs(tmp_path):
    experiment = load_experiment("ltc-table-6")
    stored = StoredResults(tmp_path, tmp_path)
    path = tmp_path / "ltc-table-6-with-lr-0.02.jsonl"
    for seed, epochs in [(0, 60), (0, 60), (1, 60), (2, 60)]:
        job = make_job(experiment.with_epochs(epochs), experiment.row("lstm"), seed)
        job = replace(job, recipe=replace(job.recipe, epochs=epochs))
        header = make_record_header(job, "2026-01-01T00:00:00+00:00")
        append_record(path, RunRecord(**header, status="done", valid=1.0, test=2.0, epochs=epochs))
    assert stored.varied("ltc-table-6", "lr-0.02", "lstm") == 2.0
    assert stored.incomplete == {"ltc-table-6-with-lr-0.02, lstm": "fewer epochs"}
    assert stored.sources == {"ltc-table-6-with-lr-0.02": {"lstm": 3}}


def test_the_lowest_error_of_a_row_without_enough_seeds_decides_nothing(tmp_path):
    add_runs(tmp_path, "ltc", [2.0])
    stored = StoredResults(tmp_path, tmp_path)
    assert stored.lowest_valid("ltc-table-6", "ltc") == 2.0
    assert stored.incomplete == {"ltc-table-6, ltc": "1 of 3 seeds"}


def test_what_one_claim_lacks_is_not_held_against_the_next(tmp_path):
    add_runs(tmp_path, "ltc", [2.0])
    write_study(tmp_path, slow=10, fast=1)
    stored = StoredResults(tmp_path, tmp_path)
    alone = {"values": {"a": "mean('ltc-table-6', 'ltc')"}, "measured": "", "in_part": ""}
    assert judge_claim(example(**alone, holds="a > 1"), stored).verdict == "not measured yet"
    assert judge_claim(example(), stored).verdict == "holds"


@pytest.mark.parametrize(("networks", "verdict"), [(1, "not measured yet"), (3, "holds")])
def test_a_study_of_trained_networks_needs_three(tmp_path, networks, verdict):
    write_study(tmp_path, slow=10, fast=1)
    path = tmp_path / "claims" / "one.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "networks": networks}))
    assert judge_claim(example(), StoredResults(tmp_path, tmp_path)).verdict == verdict


def test_numbers_that_cannot_be_traced_are_marked(tmp_path):
    write_study(tmp_path, slow=10, fast=1)
    (tmp_path / "traced.txt").write_text("0123\n")
    judged_claim = judge_claim(example(), StoredResults(tmp_path, tmp_path))
    assert judged_claim.untraced
    assert "10 times §" in write({"ltc": [judged_claim]})


def test_verdicts_of_tests_say_so():
    proof = example(holds="", in_part="", command="", verdict="holds", test="a.py::b", values={})
    page = write({"ltc": [judge_claim(replace(proof, measured="equal"), STORED)]})
    assert "| holds, by test |" in page


def test_changes_name_the_claims_whose_verdict_is_another(tmp_path):
    write_study(tmp_path, slow=3, fast=1)
    stored = StoredResults(tmp_path, tmp_path)
    before = write({"ltc": [judge_claim(example(), stored)]})
    assert "0 of 1 claim." in make_changes({"ltc": [judge_claim(example(), stored)]}, before)
    write_study(tmp_path, slow=30, fast=1)
    now = {"ltc": [judge_claim(example(), StoredResults(tmp_path, tmp_path))]}
    assert "| ltc | ten times as fast | holds in part | holds |" in make_changes(now, before)
    verdict_second = "| ten times as fast (Table 1) | holds in part ± | 3 times |"
    assert "| ltc | ten times as fast | holds in part | holds |" in make_changes(
        now, verdict_second
    )
    with pytest.raises(SpecificationError, match="none of these claims"):
        make_changes(now, "| holds | another claim (Section 1) | 3 times |")
