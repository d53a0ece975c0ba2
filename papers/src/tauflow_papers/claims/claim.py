"""Claims of the papers, as TOML files hold them, and the verdict that stored results give."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from tauflow._internal.registry import suggest_name
from tauflow._internal.sanitize import format_count
from tauflow.errors import SpecificationError, UnknownNameError
from tauflow.runs.toml_files import parse_toml

from .expression import evaluate, fill_in, is_all_missing, list_calls, move_bounds, uses_any
from .stored import MissingResultError, StoredResults, format_missing

HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
UNAVAILABLE, UNMEASURED = "cannot be measured", "not measured yet"
VERDICTS = (HOLDS, PARTLY, FAILS, UNAVAILABLE, UNMEASURED)
_MANY = 4
"""From how many rows on that lack the same their names are left out."""

PAPERS: Mapping[str, str] = {
    "ltc": "Hasani et al. 2021, Liquid time-constant networks",
    "ltc-draft": "Hasani et al. 2020, Liquid time-constant networks (arXiv draft)",
    "cfc": "Hasani et al. 2022, Closed-form continuous-time neural networks",
    "ode-lstm": "Lechner & Hasani 2020, Learning long-term dependencies in irregularly-sampled "
    "time series",
    "gnode": "Kim et al. 2022, Gated neural ODEs (submission; published in 2023)",
}
"""The five papers by the names of their files of claims."""


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and what decides it.

    Args:
        name: unique among all claims.
        says: the statement, in short.
        where: section, figure or table of the paper.
        verdict: one of :data:`VERDICTS`, of a claim without a rule.
        command: what measures it again; empty where nothing can or did.
        reason: why the verdict is as it is, with expressions in braces as in ``measured``. What
            only these read explains, and decides nothing.
        values: expressions of stored results by name; later ones may use earlier ones.
        measured: text of what was measured, with expressions and their formats in braces, such as
            ``"{ratio:.1f} times"``.
        holds: expression that is true if the claim holds.
        in_part: expression that is true if it holds in part; looked at where ``holds`` is false.
        test: test that decides the claim, as pytest names it, from the root of the repository.
    """

    name: str
    says: str
    where: str
    verdict: str = ""
    command: str = ""
    reason: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""
    holds: str = ""
    in_part: str = ""
    test: str = ""

    def __post_init__(self) -> None:
        if self.holds and self.verdict:
            raise SpecificationError(
                f"claim {self.name!r} has a rule (holds = ...), which gives its verdict: leave out "
                f"verdict = {self.verdict!r}."
            )
        if not self.holds and self.verdict not in VERDICTS:
            raise SpecificationError(
                f"claim {self.name!r}: verdict = {self.verdict!r} is not one of "
                f"{', '.join(VERDICTS)}.{suggest_name(self.verdict, VERDICTS)}"
            )
        if self.verdict in (HOLDS, PARTLY, FAILS) and not self.test:
            raise SpecificationError(
                f"claim {self.name!r}: nothing decides {self.verdict!r}. Give a rule "
                "(holds = ...) or a test."
            )
        if self.holds and not (self.command or self.test):
            raise SpecificationError(f"claim {self.name!r} has no command that measures it again.")


@dataclass(frozen=True)
class JudgedClaim:
    """A claim with what stored results say of it.

    Args:
        claim: the claim.
        measured: what was measured, in words and numbers; empty if nothing was.
        verdict: by the claim's rule, if it has one and the results are there, else as typed.
        reason: the claim's, filled in; empty where the results for it are not there.
        missing: the results that a rule needs and that are not stored; empty if all are.
        lacks: what the rows that were read lack for a verdict, as ``papers/PROTOCOL.md`` says.
        untraced: whether a number comes from sources that are not available any more.
        has_bounds: whether the rule compares with numbers of ours.
        depends: whether another verdict follows if one of these is moved by a fifth.
        evidence: what the measurement was read from, with the number of seeds.
    """

    claim: Claim
    measured: str
    verdict: str
    reason: str = ""
    missing: str = ""
    lacks: str = ""
    untraced: bool = False
    has_bounds: bool = False
    depends: bool = False
    evidence: str = ""


def load_claims(paper: str | None = None) -> dict[str, tuple[Claim, ...]]:
    """Return the claims by paper.

    Args:
        paper: one of :data:`PAPERS`; all by default.

    Raises:
        UnknownNameError: there is no such paper.
        SpecificationError: a claim has an unknown key, lacks one, or has a wrong verdict.
    """
    if paper is not None and paper not in PAPERS:
        raise UnknownNameError(
            f"there is no paper {paper!r}.{suggest_name(paper, PAPERS)} Known: {', '.join(PAPERS)}."
        )
    claims = {name: _read_claims(name) for name in ([paper] if paper else PAPERS)}
    names = [claim.name for of_paper in claims.values() for claim in of_paper]
    for name in names:
        if names.count(name) > 1:
            raise SpecificationError(f"two claims are named {name!r}; rename one.")
    return claims


def _read_claims(paper: str) -> tuple[Claim, ...]:
    where = f"{paper}.toml"
    file = resources.files("tauflow_papers.claims") / "papers" / where
    content = parse_toml(file.read_bytes(), where)
    return tuple(_make_claim(entry, where) for entry in content["claim"])


def _make_claim(entry: Mapping[str, Any], where: str) -> Claim:
    known = {field.name for field in fields(Claim)}
    for key in entry:
        if key not in known:
            raise SpecificationError(
                f"{where}, claim {entry.get('name')!r}: unknown key {key!r}."
                f"{suggest_name(key, known)} Known: {', '.join(sorted(known))}."
            )
    for key in ("name", "says", "where"):
        if key not in entry:
            raise SpecificationError(f"{where}, claim {entry.get('name')!r} has no {key!r}.")
    return Claim(**entry)


def judge_claim(claim: Claim, stored: StoredResults) -> JudgedClaim:
    """Compute what was measured, and the verdict of the claim's rule.

    Raises:
        SpecificationError: an expression is wrong.
    """
    stored.forget()
    values, missing = _compute_values(claim, stored)
    measured = fill_in(claim.measured, stored.functions, values, missing)
    if missing:
        return JudgedClaim(
            claim,
            measured if stored.sources and not is_all_missing(claim.measured, missing) else "",
            claim.verdict or UNMEASURED,
            missing=format_missing(error for errors in missing.values() for error in errors),
            untraced=stored.untraced,
            evidence=describe_sources(stored.sources),
        )

    def decide(holds: str, in_part: str) -> str:
        verdict = claim.verdict or FAILS
        for rule, outcome in ((in_part, PARTLY), (holds, HOLDS)):
            if rule and evaluate(rule, stored.functions, values):
                verdict = outcome
        return verdict

    verdict = decide(claim.holds, claim.in_part)
    if stored.comparisons:  # now that all are known, which Holm's correction needs
        values, _ = _compute_values(claim, stored)
        measured = fill_in(claim.measured, stored.functions, values)
        verdict = decide(claim.holds, claim.in_part)
    others = [(rule, claim.in_part) for rule in move_bounds(claim.holds)] if claim.holds else []
    others += [(claim.holds, rule) for rule in move_bounds(claim.in_part)] if claim.in_part else []
    depends = any(decide(*rules) != verdict for rules in others)
    lacks = _describe_lacks(stored.incomplete)
    evidence = describe_sources(stored.sources)
    if claim.holds and lacks:
        return JudgedClaim(
            claim,
            measured,
            UNMEASURED,
            lacks=lacks,
            untraced=stored.untraced,
            evidence=evidence,
        )
    untraced = stored.untraced
    try:
        reason = fill_in(claim.reason, stored.functions, values)
    except MissingResultError as error:
        reason = f"What would explain it is not stored: {error}."
    return JudgedClaim(
        claim,
        measured,
        verdict,
        reason,
        untraced=untraced,
        has_bounds=bool(others),
        depends=depends,
        evidence=evidence,
    )


def _compute_values(
    claim: Claim, stored: StoredResults
) -> tuple[dict[str, Any], dict[str, list[MissingResultError]]]:
    """Return a claim's values by name, and of the others what is not stored."""
    values: dict[str, Any] = {}
    missing: dict[str, list[MissingResultError]] = {}
    for name, text in claim.values.items():
        try:
            if uses_any(text, missing):
                missing[name] = _list_missing(text, stored, values, missing)
            else:
                values[name] = evaluate(text, stored.functions, values)
        except MissingResultError:
            missing[name] = _list_missing(text, stored, values, missing)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise SpecificationError(f"claim {claim.name!r}: {name} = {text}: {error!r}") from error
    return values, missing


def _list_missing(
    text: str, stored: StoredResults, values: Mapping[str, Any], unknown: Collection[str]
) -> list[MissingResultError]:
    """Return all that an expression reads and that is not stored, whatever names are unknown."""
    missing = []
    for call in list_calls(text):
        if uses_any(call, unknown):
            continue
        with suppress(KeyError, TypeError, ValueError, ZeroDivisionError):
            try:
                evaluate(call, stored.functions, values)
            except MissingResultError as error:
                missing.append(error)
    return missing


def describe_sources(sources: Mapping[str, Mapping[str, int | None]]) -> str:
    """Say what a measurement was read from, with seeds and numbers of networks."""
    texts = []
    for source, names in sources.items():
        if source in ("studies", "figures"):
            kind = {"studies": "study", "figures": "figure"}[source]
            for name, networks in names.items():
                count = "" if networks is None else f" ({format_count(networks, 'network')} a kind)"
                texts.append(f"{kind} {name}{count}")
            continue
        seeds = sorted({count or 0 for count in names.values()})
        seeds_text = f"{seeds[0]} to " * (len(seeds) > 1) + format_count(seeds[-1], "seed")
        texts.append(f"{format_count(len(names), 'row')} of {source} ({seeds_text})")
    return "; ".join(texts)


def _describe_lacks(incomplete: Mapping[str, str]) -> str:
    """Say what rows lack; those of one table that lack the same are counted from four on."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row, what in incomplete.items():
        groups.setdefault((row.partition(", ")[0], what), []).append(row)
    texts = []
    for (table, what), rows in groups.items():
        names = [f"{format_count(len(rows), 'row')} of {table}"] if len(rows) >= _MANY else rows
        texts += [f"{name}: {what}" for name in names]
    return "; ".join(texts)


def judge_claims(claims: Iterable[Claim], stored: StoredResults) -> list[JudgedClaim]:
    """Judge several claims."""
    return [judge_claim(claim, stored) for claim in claims]
