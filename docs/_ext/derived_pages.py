"""Pages made when the site is built: published numbers by paper, counts of tests, notebooks."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
from docutils import nodes

REPORT = "papers/results/REPORT.md"
TITLES = {
    "ltc": "Liquid time-constant networks: published numbers",
    "cfc": "Closed-form continuous-time networks: published numbers",
    "ode-lstm": "ODE-LSTM: published numbers",
    "gnode": "Gated neural ODEs: published numbers",
    "leaderboards": "Leaderboards: all rows",
    "one-budget": "One budget for every network: all rows",
}
COLUMNS = re.compile(r"\S {2,}\S")
COUNTS = "The site shows the counts of its version here;"
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# In outputs: the note of a first compilation, and folders of the machine that builds the site.
COMPILATION = re.compile(r"^[cC]ompiling the .*\n?", re.MULTILINE)
FOLDER = re.compile(r"(?<![\w.])/\S*/(?=(?:tauflow|tauflow_papers|site-packages)/)")


METRICS = {"mean squared error": "MSE", "area under the ROC curve": "AUROC"}
# Titles of papers, which stand in the list above, leave no room for the numbers beside them.
AUTHORS_ALONE = re.compile(r"^\| ([A-Z][^|,]* \d{4}), [^|]* \|", re.MULTILINE)
TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
NO_BREAK = "\N{NO-BREAK SPACE}"
FIRST_SECTIONS = ("## By paper", "## Headline results")


def write_published(app):
    """Split the report of results: a page per paper in docs/published, an overview before them."""
    folder = Path(app.srcdir) / "published"
    folder.mkdir(exist_ok=True)
    text = (Path(app.srcdir).parent / REPORT).read_text(encoding="utf-8")
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
    overview, *tables = re.split(
        r"^(?=## (?:[a-z-]+(?:-table|-figure|-budget)|leaderboards)\b)", text, flags=re.M
    )
    pages = {
        paper: [table for table in tables if table.startswith(f"## {paper}")] for paper in TITLES
    }
    assert sum(map(len, pages.values())) == len(tables)
    for paper, parts in pages.items():
        rows = TABLE.sub(lambda match: _drop_empty_columns(match[0]), "".join(parts))
        rows = rows.replace("Δ (95 %)", "Δ (95 %)".replace(" ", NO_BREAK))
        _write(folder / f"{paper}.md", f"# {TITLES[paper]}\n\n{rows}")
    links = [
        f"- [{TITLES[paper].partition(':')[0]}](published/{paper}.md): "
        + ", ".join(f"`{table[3:].split(':')[0].strip()}`" for table in parts)
        for paper, parts in pages.items()
    ]
    first, rest = overview.split("\n\n", 1)
    # Tables first, and how they are made, with all counts, after them.
    method, *sections = re.split(r"^(?=## )", rest, flags=re.M)
    parts = [section for section in sections if section.startswith(FIRST_SECTIONS)]
    others = [section for section in sections if section not in parts]
    assert len(parts) == len(FIRST_SECTIONS), "the report has no such sections"
    parts = [AUTHORS_ALONE.sub(r"| \1 |", section) for section in parts]
    for name, short in METRICS.items():
        parts, others = (
            [s.replace(f"| {name} |", f"| {short} |") for s in part] for part in (parts, others)
        )
    rest = "".join([*parts, f"## Verdicts and counts\n\n{method}", *others])
    names = "\n".join(f"published/{paper}" for paper in TITLES)
    tree = f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    app.overview = f"{first}\n\n" + "\n".join(links) + f"\n\n{rest}\n{tree}"


def _drop_empty_columns(table):
    """Return a table in Markdown without columns that say nothing in any of its rows."""
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    columns = [
        column
        for column in zip(*lines, strict=True)
        if not {cell.strip() for cell in column[2:]} <= {"–", "not in a paper"}
    ]
    return "".join(f"|{'|'.join(line)}|\n" for line in zip(*columns, strict=True))


def count_tests(app):
    """Count the tests for the page about them, unless the code of pages is not run either."""
    app.counts = None
    if app.config.nb_execution_mode != "off":
        command = [sys.executable, "tests/repo/count_tests.py"]
        folder = Path(app.srcdir).parent
        made = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
        app.counts = made.stdout


def add_counts(app, text):
    """Return the page about the tests with their counts."""
    if app.counts is None:
        return text
    before, replaced, after = text.partition(COUNTS)
    assert replaced, "docs/tested.md lacks the line that the counts replace"
    return before + app.counts + after.partition("\n")[2]


def write_notebook(app, docname, text):
    """Write a page with code as a notebook too; return the page with a link to it."""
    name = f"{docname.replace('/', '-')}.ipynb"
    pieces = CODE.split(re.sub(r"\]\((?!https?:)[^)#]*?(\w[\w-]*)\.md[^)]*\)", r"](\1.html)", text))
    cells = [
        (nbformat.v4.new_code_cell if number % 2 else nbformat.v4.new_markdown_cell)(piece.strip())
        for number, piece in enumerate(pieces)
        if piece.strip()
    ]
    for number, cell in enumerate(cells):  # else a random one, which changes with every build
        cell["id"] = f"cell-{number}"
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    _write(folder / name, nbformat.writes(notebook) + "\n")
    link = f"{{download}}`Download this page as a notebook </notebooks/{name}>`"
    title = re.search(r"^# .*\n", text, re.MULTILINE)
    return f"{text[: title.end()]}\n{link}\n{text[title.end() :]}"


def hide_machine(app, doctree):
    """Drop from the outputs of a page what only concerns the machine that builds the site."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext()
        if text != (shown := FOLDER.sub("", COMPILATION.sub("", text))):
            block.children[:] = [nodes.Text(shown)]
            block.rawsource = shown  # else it would not be written as other outputs are
        lines = shown.splitlines()
        if 2 * sum(map(bool, map(COLUMNS.search, lines))) > len(lines) > 2:  # lines must not wrap
            block["classes"].append("columns")


def mark_cells(app, doctree):
    """Mark cells of tables: much text, wide on a narrow screen; names, which do not wrap.

    Code with a word that is longer than a column should be wraps anywhere. Tables of text are
    marked as cards, which their rows are on a narrow screen.
    """
    for code in doctree.findall(nodes.literal):
        if max(map(len, code.astext().split()), default=0) > 32:
            code["classes"].append("long")
    for entry in doctree.findall(nodes.entry):
        text = entry.astext()
        if len(text) > 80:
            entry["classes"].append("long")
        elif len(text) > 24:
            entry["classes"].append("middle")
        elif not re.search(r"\s", text):
            entry["classes"].append("name")
    for table in doctree.findall(nodes.table):
        if app.env.docname == "models" or _is_text(table):
            table["classes"].append("cards")
            _label_cells(table)


def _is_text(table):
    """Whether a table has no numbers and pictures, and a row that is wider than a narrow screen."""
    entries = list(table.findall(nodes.entry))
    if any("text-right" in entry["classes"] for entry in entries):
        return False
    rows = table.findall(nodes.row)
    return not any(table.findall(nodes.image)) and any(
        sum(len(entry.astext()) for entry in row) > 90 for row in rows
    )


def _label_cells(table):
    """Put the heading of a column into its cells, if there are several to tell apart."""
    if not any(table.findall(nodes.thead)):
        return
    headings, *rows = ([*row] for row in table.findall(nodes.row))
    for row in rows if len(headings) > 2 else ():
        for heading, entry in zip(headings[1:], row[1:], strict=True):
            if entry.astext():
                entry.insert(0, nodes.paragraph("", heading.astext(), classes=["column"]))


def describe_pictures(app, doctree):
    """Describe the pictures that code has made, else the name of a file is their text."""
    for image in doctree.findall(nodes.image):
        section = image.parent
        while section is not None and not isinstance(section, nodes.section):
            section = section.parent
        if section is not None and "alt" not in image:
            title = section.next_node(nodes.title).astext()
            image["alt"] = f"Plot made by the code above, in the section {title}"


def write_llms(app, error):
    """Write llms.txt, an overview of the pages for language models: title, address, first words."""
    if error is not None or app.builder.format != "html":
        return
    env = app.env
    lines = ["# tauflow", "", f"> {_first_words(env, 'index', 400)}", "", "## Pages", ""]
    for name in sorted(env.found_docs):
        if not name.startswith(("api/generated/", "published/", "gallery/", "index")):
            title, words = env.titles[name].astext(), _first_words(env, name, 160)
            lines.append(f"- [{title}]({name}.html): {words}")
    lines += ["", "## Reference", ""]
    for name in sorted(n for n in env.found_docs if n.startswith("api/generated/")):
        lines.append(f"- [{name.removeprefix('api/generated/')}]({name}.html)")
    _write(Path(app.outdir) / "llms.txt", "\n".join(lines) + "\n")


def _first_words(env, name, length):
    """Return the beginning of a page's first paragraph of text."""
    for paragraph in env.get_doctree(name).findall(nodes.paragraph):
        text = " ".join(paragraph.astext().split())
        if text and not text.startswith("Download this page"):
            return text if len(text) <= length else text[:length].rsplit(" ", 1)[0] + " ..."
    return ""


def _write(path, text):
    """Write a file if it has changed, so that only then its page is built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
