"""Stored results as expressions read them: runs of tables, figures, studies."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from tauflow._internal.sanitize import format_count
from tauflow.errors import NonFiniteError, SpecificationError
from tauflow.runs.results import DONE, RunRecord
from tauflow_papers.experiments import load_experiment
from tauflow_papers.experiments.report.protocol import (
    AGREES,
    BETTER,
    LEVEL,
    MIN_SEEDS,
    UNDECIDED,
    WORSE,
    correct_by_holm,
    find_missing,
    is_ahead,
)
from tauflow_papers.experiments.report.results_summary import TableSummary, summarize_table
from tauflow_papers.experiments.report.row_summary import RowSummary
from tauflow_papers.experiments.report.row_verdicts import find_row_missing
from tauflow_papers.experiments.run.provenance import find_untraced, is_untraced
from tauflow_papers.experiments.run.result_file import find_divergence, read_records
from tauflow_papers.experiments.spec.variation import VARIATION_INFIX

STUDIES_FOLDER = "claims"
"""Where the numbers of studies are, in the folder of results."""


class MissingResultError(Exception):
    """A result that an expression reads is not stored.

    Args:
        lack: such as ``"ltc-table-6 has no runs of"``, or the whole of it.
        what: what follows, such as rows.
    """

    def __init__(self, lack: str, *what: str) -> None:
        super().__init__(lack, *what)
        self.lack, self.what = lack, what

    def __str__(self) -> str:
        return format_missing([self])


def format_missing(errors: Iterable[MissingResultError]) -> str:
    """Say in one line what is not stored."""
    lacks: dict[str, list[str]] = {}
    for error in errors:
        lacks.setdefault(error.lack, []).extend(error.what)
    return "; ".join(
        f"{lack} {', '.join(dict.fromkeys(what))}".rstrip() for lack, what in lacks.items()
    )


class StoredResults:
    """What is stored in a folder of results and a folder of figures.

    ``incomplete`` gathers the rows that were read and what each lacks for a verdict, ``untraced``
    whether any number read comes from sources that are gone, and ``sources`` what was read: the
    number of seeds of rows by table, under ``"studies"`` that of trained networks, and figures;
    ``comparisons`` the p-values of the tests so far, which are corrected together.
    :meth:`forget` clears all of it.

    Args:
        results_dir: with the runs of tables, and the studies' numbers.
        figures_dir: with the JSON and CSV files of figures.
    """

    def __init__(self, results_dir: Path, figures_dir: Path) -> None:
        self.results_dir, self.figures_dir = results_dir, figures_dir
        self.incomplete: dict[str, str] = {}
        self.untraced = False
        self.sources: dict[str, dict[str, int | None]] = {}
        self.comparisons: dict[tuple[str, str, str], float] = {}
        self._read_table = lru_cache(maxsize=None)(self._read_table_once)

    def forget(self) -> None:
        """Begin with a new claim."""
        self.incomplete, self.untraced, self.sources, self.comparisons = {}, False, {}, {}

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of expressions, by name."""
        return {
            "mean": self.mean,
            "spread": self.spread,
            "runs": self.runs,
            "means": self.means,
            "valid": self.valid,
            "valids": self.valids,
            "highest_valid": self.highest_valid,
            "highest_valids": self.highest_valids,
            "last_epoch": self.last_epoch,
            "parameters": self.parameters,
            "diverged": self.diverged,
            "best_epoch": self.best_epoch,
            "published": self.published,
            "published_minutes": self.published_minutes,
            "judgement": self.judgement,
            "agree": self.agree,
            "ahead": self.ahead,
            "share_beaten": self.share_beaten,
            "lowest_valid": self.lowest_valid,
            "measured": self.measured,
            "varied": self.varied,
            "found": self.found,
            "medians": self.medians,
            "study": self.study,
            "exponent": compute_exponent,
            "values": lambda table: list(table.values()),
            "wins": count_wins,
            "ratios": lambda a, b: {name: value / b[name] for name, value in a.items()},
            "min": min,
            "max": max,
            "sum": sum,
            "sorted": sorted,
            "abs": abs,
            "len": len,
            "log10": math.log10,
            "median": median,
        }

    def mean(self, table: str, row: str) -> float:
        """Return the mean of the test scores of a row's runs."""
        return fmean(r.test for r in self._read_row(table, row).records if r.test is not None)

    def means(self, table: str, row: str, over: Sequence[str | int]) -> dict[str, float]:
        """Return the means of several rows, as :meth:`valids` does validation scores."""
        return self._read_each(self.mean, table, row, over)

    def spread(self, table: str, row: str) -> float:
        """Return their standard deviation, of the sample."""
        return stdev(r.test for r in self._read_row(table, row).records if r.test is not None)

    def runs(self, table: str, row: str) -> int:
        """Return how many runs a row has."""
        return len(self._find_row(table, row).records)

    def valid(self, table: str, row: str) -> float:
        """Return the mean of their validation scores."""
        return fmean(r.valid for r in self._read_row(table, row).records if r.valid is not None)

    def valids(self, table: str, row: str, over: Sequence[str | int]) -> dict[str, float]:
        """Return the validation scores of several rows, by what is filled into their name.

        Args:
            table: its name.
            row: a name with braces, such as ``d-gnode-tau-{}``.
            over: what the braces stand for.
        """
        return self._read_each(self.valid, table, row, over)

    def highest_valid(self, table: str, row: str) -> float:
        """Return the highest of their validation scores."""
        return max(r.valid for r in self._read_row(table, row).records if r.valid is not None)

    def highest_valids(self, table: str, row: str, over: Sequence[str | int]) -> dict[str, float]:
        """Return the highest validation score of several rows, as :meth:`valids` does the mean."""
        return self._read_each(self.highest_valid, table, row, over)

    def last_epoch(self, table: str, row: str) -> float:
        """Return the mean of the runs' test scores in the last epoch."""
        runs = self._read_row(table, row).records
        return fmean(r.last_test for r in runs if r.last_test is not None)

    def parameters(self, table: str, row: str) -> int:
        """Return how many parameters a row's network has."""
        (count,) = {record.parameters for record in self._find_row(table, row).records}
        assert count is not None, f"{table}, {row} has runs without a number of parameters"
        return count

    def diverged(self, table: str, row: str) -> float:
        """Return which share of a row's runs diverged: stopped before their end, or failed.

        Runs that failed for another reason than a number that is not finite do not count.
        """
        entry = self._find_row(table, row)
        failed = self._list_diverged(table, row)
        missing = find_missing(
            len(entry.records) + len(failed),
            epochs=not entry.few_epochs,
            settings=not entry.few_settings,
        )
        if missing:
            self.incomplete[f"{table}, {row}"] = missing
        self.sources[table][row] = len(entry.records) + len(failed)
        stopped = [find_divergence(record) is not None for record in entry.records]
        return fmean([*stopped, *(True for _ in failed)])

    def best_epoch(self, table: str, row: str) -> float:
        """Return the mean of the runs' highest test scores of any epoch."""
        runs = [record.history for record in self._read_row(table, row).records]
        return fmean(max(e["test"] for e in run if e.get("test") is not None) for run in runs)

    def published(self, table: str, row: str) -> float:
        """Return the published mean of a row, or its bound."""
        known = load_experiment(table).row(row).published
        values = (v for v in (known.mean, known.below, known.above) if v is not None)
        return next(values)

    def published_minutes(self, table: str, row: str) -> float:
        """Return the published minutes of an epoch."""
        minutes = load_experiment(table).row(row).published.minutes_per_epoch
        assert minutes is not None, f"{table}, {row} has no published time"
        return minutes

    def ahead(self, table: str, row: str, others: Sequence[str]) -> bool:
        """Whether a row is better than each of others: Welch's test, corrected by Holm.

        Args:
            table: its name.
            row: of the table.
            others: rows of the same metric in the table.
        """
        return self.share_beaten(table, row, others) == 1.0

    def share_beaten(self, table: str, row: str, others: Sequence[str]) -> float:
        """Return the share of other rows that a row is better than, as :meth:`ahead` tests it."""
        scores_of_row = self._list_scores(table, row)
        metric = load_experiment(table).row(row).metric
        scores = [self._list_scores(table, other) for other in others]
        if min(map(len, [scores_of_row, *scores])) < 2:
            return 0.0
        keys = [(table, row, other) for other in others]
        ps = (is_ahead(scores_of_row, other, metric) for other in scores)
        self.comparisons |= dict(zip(keys, ps, strict=True))
        corrected = correct_by_holm([*self.comparisons.values()])
        corrected_ps = dict(zip(self.comparisons, corrected, strict=True))
        return fmean(corrected_ps[key] < LEVEL for key in keys)

    def _list_scores(self, table: str, row: str) -> list[float]:
        return [r.test for r in self._read_row(table, row).records if r.test is not None]

    def judgement(self, table: str, row: str) -> str:
        """Return how the report judges a row."""
        return self._find_row(table, row).judgement

    def agree(self, table: str, rows: Sequence[str]) -> bool:
        """Whether the report finds rows as published; undecided rows are missing, if none differs.

        Args:
            table: its name.
            rows: of the table.
        """
        entries = {row: self._read_row(table, row) for row in rows}
        if not any(entry.judgement in (BETTER, WORSE) for entry in entries.values()):
            for row, entry in entries.items():
                if entry.judgement == UNDECIDED:
                    seeds = format_count(entry.seeds[0], "seed")
                    self.incomplete[f"{table}, {row}"] = f"undecided with {seeds}"
        return all(entry.judgement == AGREES for entry in entries.values())

    def lowest_valid(self, table: str, row: str) -> float:
        """Return the lowest validation score of any run of a row, whatever its setting."""
        entry = self._read_row(table, row)
        if entry.few_settings:
            done, wanted = entry.settings
            lack = self.incomplete[f"{table}, {row}"]
            settings = f"{done} of {format_count(wanted, 'setting')}"
            self.incomplete[f"{table}, {row}"] = lack.replace("fewer settings", settings)
        records = self._read_table(table).grid.records
        return min(r.valid for r in records if r.row == row and r.valid is not None)

    def measured(self, table: str, part: str = "") -> int:
        """Return how many rows of a table, or of one of its parts, have results."""
        return sum(e.row.part.name == part or not part for e in self._read_table(table).measured)

    def varied(self, table: str, setting: str, row: str) -> float:
        """Return the mean test score of a row's runs with another setting.

        Args:
            table: its name.
            setting: as in the name of the file behind ``-with-``.
            row: of the table.
        """
        path = self.results_dir / f"{table}{VARIATION_INFIX}{setting}.jsonl"
        records, _ = read_records(path)
        done = [r for r in records if r.row == row and r.status == DONE]
        if not done:
            raise MissingResultError(f"{path.stem} has no runs of", row)
        recipe = load_experiment(table).row(row).recipe
        assert recipe is not None, f"nothing is trained in {table}, {row}"
        longest = max(record.planned_epochs for record in done)
        done = [record for record in done if record.planned_epochs == longest]
        seeds = len({record.seed for record in done})
        missing = find_missing(seeds, epochs=longest >= recipe.epochs, settings=True)
        if missing:
            self.incomplete[f"{path.stem}, {row}"] = missing
        self.untraced |= bool(find_untraced(done, self.results_dir))
        self.sources.setdefault(path.stem, {})[row] = seeds
        return fmean(r.test for r in done if r.test is not None)

    def found(self, figure: str, *path: str) -> Any:
        """Return a finding of a figure, by the keys that lead to it."""
        record = self._read_json(self.figures_dir / f"{figure}.json")
        self.untraced |= self._is_untraced(record)
        self.sources.setdefault("figures", {})[figure] = None
        return _follow(record["findings"], path, f"figure {figure}")

    def medians(self, figure: str, column: str, by: str, **fixed: str) -> dict[str, float]:
        """Return the median of a column of a figure's CSV file for each value of another one.

        Args:
            figure: its name.
            column: of numbers.
            by: the column whose values are grouped.
            fixed: what other columns hold in the rows that count.
        """
        path = self.figures_dir / f"{figure}.csv"
        if not path.is_file():
            raise MissingResultError(f"{path.name} is not among the figures")
        groups: dict[str, list[float]] = {}
        with path.open(encoding="utf-8", newline="") as file:
            for entry in csv.DictReader(file):
                if all(entry[name] == value for name, value in fixed.items()):
                    groups.setdefault(entry[by], []).append(float(entry[column]))
        if not groups:
            raise SpecificationError(f"{path.name} has no rows with {fixed}.")
        self.untraced |= self._is_untraced(self._read_json(path.with_suffix(".json")))
        self.sources.setdefault("figures", {})[figure] = None
        return {name: median(v for v in g if math.isfinite(v)) for name, g in groups.items()}

    def study(self, name: str, *path: str) -> Any:
        """Return a number of a study, by the keys that lead to it; infinity if it overflew."""
        record = self._read_json(self.results_dir / STUDIES_FOLDER / f"{name}.json")
        self.untraced |= self._is_untraced(record)
        seeds = record.get("networks")
        self.sources.setdefault("studies", {})[name] = seeds
        if seeds is not None and seeds < MIN_SEEDS:
            self.incomplete[f"study {name}"] = (
                f"{seeds} of {format_count(MIN_SEEDS, 'trained network')} of a kind"
            )
        value = _follow(record["numbers"], path, f"study {name}")
        return math.inf if value is None else value

    def _read_each(
        self, read: Callable[[str, str], float], table: str, row: str, over: Sequence[str | int]
    ) -> dict[str, float]:
        numbers: dict[str, float] = {}
        missing: list[str] = []
        for value in map(str, over):
            try:
                numbers[value] = read(table, row.format(value))
            except MissingResultError as error:
                missing += error.what
        if missing:
            raise MissingResultError(f"{table} has no runs of", *missing)
        return numbers

    def _read_row(self, table: str, row: str) -> RowSummary:
        """Return a row whose scores decide, and note what it lacks."""
        entry = self._find_row(table, row)
        if missing := find_row_missing(entry):
            self.incomplete[f"{table}, {row}"] = missing
        return entry

    def _find_row(self, table: str, row: str) -> RowSummary:
        load_experiment(table).row(row)  # refuses an unknown one
        entries = {entry.row.name: entry for entry in self._read_table(table).measured}
        if row not in entries:
            raise MissingResultError(f"{table} has no runs of", row)
        self.untraced |= bool(entries[row].untraced)
        seeds = entries[row].seeds[0] + len(self._list_diverged(table, row))
        self.sources.setdefault(table, {})[row] = seeds
        return entries[row]

    def _list_diverged(self, table: str, row: str) -> list[RunRecord]:
        """Return the runs of a row that failed by a number that is not finite."""
        return [
            record
            for record in self._read_table(table).failures
            if record.row == row and str(record.error).startswith(NonFiniteError.__name__)
        ]

    def _read_table_once(self, table: str) -> TableSummary:
        return summarize_table(load_experiment(table), self.results_dir)

    def _is_untraced(self, record: Mapping[str, Any]) -> bool:
        """Whether the numbers of a study or a figure come from sources that are not known."""
        return is_untraced(record.get("commit"), self.results_dir)

    def _read_json(self, path: Path) -> Any:
        if not path.is_file():
            raise MissingResultError(f"{path.name} is not among the results")
        return json.loads(path.read_text(encoding="utf-8"))


def compute_exponent(values: Mapping[str, float]) -> float:
    """Return the power of the names, numbers themselves, that the values grow with.

    It is the slope of the logarithms by least squares.
    """
    points = [(math.log(float(x)), math.log(y)) for x, y in values.items()]
    x0, y0 = fmean(x for x, _ in points), fmean(y for _, y in points)
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def count_wins(values: Mapping[str, float], *others: Mapping[str, float]) -> int:
    """Return for how many names a value is above that of every other mapping."""
    return sum(all(value > other[name] for other in others) for name, value in values.items())


def _follow(value: Any, path: tuple[str, ...], source: str) -> Any:
    for key in path:
        if key not in value:
            raise MissingResultError(f"{source} has no", ", ".join(path))
        value = value[key]
    return value
