"""The code on the pages of the documentation runs, from top to bottom of each page."""

import re
import sys

import pytest
import typer.main
from sources import ROOT

from tauflow.cells.registry import MODELS
from tauflow.cli.main import app
from tauflow_papers.experiments import load_experiment

sys.path.insert(0, str(ROOT))
from benchmarks import plot_models

PAGES = sorted((ROOT / "docs").glob("*.md"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
CODE = {
    page.name: blocks
    for page in PAGES
    if (blocks := re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S))
}
NEEDS = {"onnx": "onnxruntime", "pandas": "pandas", "estimators": "sklearn"}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("page", CODE)
def test_its_code_runs(page, tmp_path, monkeypatch):
    for word, module in NEEDS.items():
        if word in "".join(CODE[page]):
            pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for number, block in enumerate(CODE[page]):
        exec(compile(block, f"{page}, block {number}", "exec"), namespace)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_there_is_code():
    assert "long-sequences.md" in CODE


def links(page):
    return re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))


@pytest.mark.parametrize(
    "page", [*PAGES, *TUTORIALS, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_links_lead_somewhere(page):
    for target in links(page):
        assert (page.parent / target).exists(), target


def lines_of(pages):
    """Yield (place, line) of every line of pages."""
    for page in pages:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            yield f"{page.relative_to(ROOT)}:{number}", line


WRITTEN = [
    page
    for page in (ROOT / "docs").rglob("*.md")
    if not {"_build", "examples", "published", "generated"} & set(page.parts)
]


def test_no_line_is_a_comment_of_myst():
    assert [place for place, line in lines_of(WRITTEN) if re.match(r"\s*%", line)] == []


def test_no_text_is_read_as_markup():
    """A line of a paragraph that begins with "1." is a list, and ``<NA>`` a tag, not shown."""
    html = re.compile(r"</?(?!details|summary|a |a>|!--)[A-Za-z][^>]*>")
    wrong, fenced, before = [], False, ""
    for place, line in lines_of(WRITTEN):
        fenced ^= line.startswith("```")
        item = re.match(r"(\d+[.)]|[-+*]) ", line)
        in_paragraph = before.strip() and not re.match(r"\s|\d+[.)] |[-+*] |#|\||<|```|:", before)
        if not fenced and ((item and in_paragraph) or html.search(re.sub(r"`[^`]*`", "", line))):
            wrong.append(place)
        before = line
    assert wrong == []


def test_pages_install_from_a_checkout():
    """The package is on no index, so that its name alone installs nothing."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    commands = [(place, line) for place, line in lines_of(pages) if "pip install" in line]
    assert len(commands) >= 5
    assert [place for place, line in commands if re.search(r"install '?tauflow", line)] == []


def commands_on(page):
    """Yield the commands `tauflow ...` of a page, in code blocks and in running text."""
    text = page.read_text("utf-8").replace("\\\n", " ")
    yield from re.findall(r"(?<!`)`(tauflow [a-z][^`]*)`", text)
    for block in re.findall(r"^```(?:sh|bash)?\n(.*?)^```$", text, re.M | re.S):
        yield from re.findall(r"^(?:\w+=\S+ )*(tauflow [a-z].*?)(?:  #.*)?$", block, re.M)


def test_pages_name_commands_and_options_that_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES, *TUTORIALS]
    pages += (ROOT / "docs").glob("adding/*.md")
    commands = [(page.name, " ".join(text.split())) for page in pages for text in commands_on(page)]
    assert len(commands) > 100
    root, wrong = typer.main.get_command(app), []
    for page, text in commands:
        command, words = root, text.split()[1:]
        while words and words[0] in getattr(command, "commands", {}):
            command, *words = command.commands[words[0]], *words[1:]
        options = {"--help"}.union(*(param.opts + param.secondary_opts for param in command.params))
        options_on_page = {
            word.partition("=")[0].rstrip(",.;)") for word in words if word.startswith("--")
        }
        if command is root or options_on_page - options:
            wrong.append((page, text))
    assert wrong == []


def test_every_tutorial_ends_in_a_picture():
    """A figure of pyplot, or one that the last line returns, is shown where the page is built."""
    pages = [page for page in TUTORIALS if page.name != "index.md"]
    assert len(pages) == 5
    for page in pages:
        last = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)[-1]
        assert "plt.subplots(" in last or re.search(r"^[\w.]+\.plot\(\)$", last, re.M), page.name


@pytest.mark.parametrize("page", [*PAGES, *TUTORIALS], ids=lambda page: page.name)
def test_pyplot_is_imported_before_a_figure_is_returned(page):
    """Else IPython has no way to show the figure when it is returned, and writes its ``repr``."""
    before, rest, _ = page.read_text("utf-8").partition(".plot()\n```")
    assert not rest or "import matplotlib.pyplot as plt" in before


def test_there_are_links():
    assert sum(len(links(page)) for page in PAGES) > 50


def test_what_a_model_is_chosen_by_was_measured():
    """The accuracies on the page stand in the report, so that new results change both."""
    page = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    scores = page[page.index("## Published recipes") : page.index("**Not measured**")]
    shown = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", scores)
    report = (ROOT / "papers" / "results" / "REPORT.md").read_text("utf-8")
    assert len(shown) > 30
    assert [number for number in shown if f" {number} " not in report] == []


TRAINED_IN = {"Walker2d": "cfc-table-7", "PhysioNet": "cfc-table-5", "Half-Cheetah": "ltc-table-6"}


def test_models_to_choose_from_have_the_names_of_what_was_trained():
    """Papers call several models of the catalog GRU-D, CT-RNN or CT-GRU."""
    page = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    lines = re.findall(r"^\|.*\|$", page.partition("\n\n**")[0], re.M)
    columns, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    assert len(rows) > 10
    for column, title in enumerate(columns[2:], start=2):
        table = TRAINED_IN.get(title.partition(",")[0], "ltc-table-3")
        trained = {row.model.cell for row in load_experiment(table).rows if row.model is not None}
        named = {row[1].strip("`") for row in rows if row[column] != "–"}
        assert named <= trained, title


def test_the_page_on_choosing_begins_with_names_of_models_and_a_picture_of_them():
    page = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    first, _, rest = page.partition("![")
    rows = re.findall(r"^\|.*\|$", first, re.M)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row.split("|")[2])}
    assert {"cfc", "ltc"} <= named <= MODELS.keys()
    assert rest.partition("](")[2].startswith("_static/models.svg)")
    picture = plot_models.PICTURE.read_text("utf-8")
    times = plot_models.read_times()
    for task in plot_models.TASKS:
        names = plot_models.read_scores(task).keys() & times.keys()
        assert len(names) > 5
        assert [name for name in names if f">{name}<" not in picture] == []


def test_times_of_streams_were_measured():
    page = (ROOT / "docs" / "streaming.md").read_text("utf-8")
    section = page[page.index("## How fast") :].partition("\n\nHow to get C")[0]
    measured = "".join(
        (ROOT / "results" / "benchmarks" / name).read_text("utf-8")
        for name in ("streaming-2026-11-28.md", "deploy-2026-11-23.md")
    )
    times = re.findall(r"(\d[\d.]*) [µm]s", section)
    assert len(times) >= 14
    assert [time for time in times if f" {time} " not in measured] == []


def test_pages_agree_on_how_long_the_suite_takes():
    pages = ("CONTRIBUTING.md", "docs/reliability.md")
    texts = [(ROOT / page).read_text("utf-8") for page in pages]
    durations = [re.search(r"^ *make test  .*?(\w+ \w+ minutes)", text, re.M)[1] for text in texts]
    assert len(set(durations)) == 1


def test_contributors_run_commands_and_files_that_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^(\w+):", makefile, re.M))
    assert set(re.findall(r"^make (\w+)", page, re.M)) <= targets
    paths = re.findall(r"(?:papers/)?tests/[\w/.]+|\.ci/run", page)
    assert len(paths) > 8
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_workflow_runs_what_contributors_run():
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")
    assert "- run: .ci/run\n" in workflow
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.search(r"^make test$", script, re.M)


def test_the_changelog_of_a_release_is_short():
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unreleased = re.search(r"^## \[\S+\] - unreleased\n(.*?)^## \[", changes, re.M | re.S)[1]
    entries = re.findall(r"^- ", unreleased, re.M)
    assert 0 < len(entries) <= 60
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", changes)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_comparisons_with_other_libraries_were_measured():
    """``python -m benchmarks libraries`` keeps the tables, of which the page has a part."""
    page = (ROOT / "docs" / "relates.md").read_text("utf-8")
    results = ROOT / "results" / "benchmarks" / "libraries"
    rows = re.findall(r"^\| .* \| [\d.]+(?: ± [\d.]+)? \|$", page, re.M)
    assert len(rows) >= 30
    text = (results / "README.md").read_text("utf-8")
    assert [row for row in rows if row not in text] == []
    assert sorted(re.findall(r"^## (.*)$", text, re.M)) == sorted(
        path.stem for path in results.glob("*.json")
    )
