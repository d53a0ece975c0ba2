"""How a row is judged: ``papers/PROTOCOL.md`` as code; sections in brackets are those of that page.

Everything here is numbers: means, deviations and counts go in, an interval and a verdict come out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

from tauflow._internal.sanitize import format_count
from tauflow.training.metrics import METRICS

AGREES, BETTER, WORSE = "as published", "better", "worse"
UNDECIDED = "undecided"
"""The data exclude neither that ours is the published number nor that it differs."""
UNMEASURED = "not measured"
"""Seeds, epochs, settings or splits that a verdict needs are missing."""
VERDICTS = (AGREES, BETTER, WORSE, UNDECIDED, UNMEASURED)

MIN_SEEDS = 3
LEVEL = 0.05
_UNKNOWN_N = 3
CHANCE_MARGIN = 0.02
_SCORE_MARGINS: Mapping[str, float] = {"f1": 0.02, "average_precision": 0.02}
_SCORE_MARGIN, _ERROR_MARGIN = 0.01, 0.05


@dataclass(frozen=True)
class Interval:
    """A difference of two means.

    Args:
        difference: the one minus the other; of logarithms, if ``logarithmic``.
        error: its standard error.
        df: degrees of freedom of the error.
        margin: what a reader would neglect, in the same unit.
        logarithmic: whether the difference is that of logarithms.
    """

    difference: float
    error: float
    df: float
    margin: float
    logarithmic: bool = False

    def get_limits(self, level: float = 1.0 - LEVEL) -> tuple[float, float]:
        """Return the ends of the interval that holds the true difference at a level."""
        half = find_t_quantile(0.5 + level / 2, self.df) * self.error if self.error else 0.0
        return self.difference - half, self.difference + half

    @property
    def p(self) -> float:
        """Two-sided probability of a difference as large under the null hypothesis."""
        if not self.error:
            return float(self.difference == 0.0)
        return min(1.0, 2.0 * find_t_tail(abs(self.difference) / self.error, self.df))

    @property
    def is_equivalent(self) -> bool:
        """Whether two one-sided tests find the difference within the margin."""
        low, high = self.get_limits(1.0 - 2.0 * LEVEL)
        return -self.margin <= low and high <= self.margin


@dataclass(frozen=True)
class PublishedNumber:
    """What a paper says of a row.

    Args:
        mean: the mean over runs.
        std: its deviation, if given.
        n: number of runs, if given.
        ddof: of the deviation: 0 for the population's, 1 for the sample's.
        unit: unit of its last digit.
        below: it says only that the number is below this.
        above: it says only that it is at least this.
        chance: score of the best constant answer, where networks are reported to fail.
    """

    mean: float | None = None
    std: float | None = None
    n: int | None = None
    ddof: int = 1
    unit: float = 0.0
    below: float | None = None
    above: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Judgement:
    """The verdict of a row.

    Args:
        verdict: of :data:`VERDICTS`; empty if nothing was published that can be compared.
        why: in a few words.
        interval: of the difference, if there is one.
        p: of the test that there is no difference, corrected for the rows of the table.
        side: 1 if ours is the worse one, -1 if it is better, 0 if they are equal.
        splits: over how many splits of the data ours is the mean; 0 if over seeds.
    """

    verdict: str = ""
    why: str = ""
    interval: Interval | None = None
    p: float | None = None
    side: int = 0
    splits: int = 0


def find_t_tail(t: float, df: float) -> float:
    """Return the probability that Student's t is above ``t``."""
    from scipy.special import stdtr

    return float(stdtr(df, -t))


def find_t_quantile(q: float, df: float) -> float:
    """Return what Student's t is below with probability ``q``."""
    from scipy.special import stdtrit

    return float(stdtrit(df, q))


def get_margin(metric: str, published: float) -> float:
    """Return the difference from a published number that a reader would neglect [4]."""
    if METRICS[metric].higher_is_better:
        return _SCORE_MARGINS.get(metric, _SCORE_MARGIN)
    return _ERROR_MARGIN * abs(published)


def find_missing(seeds: int, *, epochs: bool, settings: bool, splits: int | None = None) -> str:
    """Say what a row lacks for a verdict [2]; nothing if it has all.

    Args:
        seeds: finished ones.
        epochs: whether all runs had all epochs.
        settings: whether all settings of a search were tried.
        splits: different splits, where the published split is one of many.
    """
    lacking = []
    if splits is not None and splits < MIN_SEEDS:
        lacking.append(f"{splits} of {format_count(MIN_SEEDS, 'split')}")
    elif splits is None and seeds < MIN_SEEDS:
        lacking.append(f"{seeds} of {format_count(MIN_SEEDS, 'seed')}")
    lacking += ["fewer epochs"] * (not epochs) + ["fewer settings"] * (not settings)
    return ", ".join(lacking)


def compare_with_published(
    ours: Sequence[float], published: PublishedNumber, metric: str, *, over_splits: bool = False
) -> Interval:
    """Return the difference from a published mean with both spreads [3, 5].

    Args:
        ours: a score for each seed, or for each split; two at least.
        published: a number with a mean.
        metric: name of the metric.
        over_splits: whether the published number is that of one split and ours are of several.
    """
    if published.mean is None or len(ours) < 2:
        raise ValueError("an interval needs a published mean and two scores of ours")
    margin = get_margin(metric, published.mean)
    k = len(ours)
    if published.std is None:
        n = published.n or 1
        logarithmic = not METRICS[metric].higher_is_better and min(*ours, published.mean) > 0
        values = [math.log(our) for our in ours] if logarithmic else ours
        target = math.log(published.mean) if logarithmic else published.mean
        error = stdev(values) * math.sqrt(1 / k + 1 / n)
        margin = math.log1p(margin / published.mean) if logarithmic else margin
        return Interval(fmean(values) - target, error, k - 1, margin, logarithmic)
    n = published.n or _UNKNOWN_N
    deviation = published.std or published.unit / math.sqrt(12)
    if published.std and published.ddof == 0 and n > 1:
        deviation *= math.sqrt(n / (n - 1))
    ours_part = stdev(ours) ** 2 * ((1 + 1 / k) if over_splits else 1 / k)
    theirs_part = deviation**2 / n
    error = math.sqrt(ours_part + theirs_part)
    df = find_welch_df(ours_part, k - 1, theirs_part, max(1, n - 1))
    return Interval(fmean(ours) - published.mean, error, df, margin)


def find_welch_df(first: float, df1: float, second: float, df2: float) -> float:
    """Return the degrees of freedom of a sum of two variances, by Welch and Satterthwaite."""
    total = first + second
    return df1 + df2 if total == 0.0 else total**2 / (first**2 / df1 + second**2 / df2)


def correct_by_holm(p: Sequence[float]) -> list[float]:
    """Return probabilities corrected for their number by Holm's step-down method."""
    corrected = [0.0] * len(p)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[place]))
        corrected[place] = largest
    return corrected


def judge_bound(ours: Sequence[float], published: PublishedNumber, metric: str) -> Judgement:
    """Judge a row of which the paper gives a bound [3, a bound instead of a number]."""
    low = published.above is not None
    bound = published.above if low else published.below
    assert bound is not None, "a row with a bound"
    kept_bounds = [(value >= bound) if low else (value < bound) for value in ours]
    share = f"{sum(kept_bounds)} of {len(kept_bounds)} runs keep the bound"
    middle = median(ours)
    if (middle >= bound) if low else (middle < bound):
        return Judgement(AGREES, share)
    if any(kept_bounds):
        return Judgement(UNDECIDED, share)
    is_worse = METRICS[metric].higher_is_better == low
    return Judgement(WORSE if is_worse else BETTER, share, side=1 if is_worse else -1)


def judge_failure(ours: Sequence[float], chance: float) -> Judgement:
    """Judge a row of which the paper reports that the network fails [3, a published failure]."""
    mean, limit = fmean(ours), chance + CHANCE_MARGIN
    why = f"published at most 2 points above the constant answer's {100 * chance:.2f} %"
    if mean <= limit:
        return Judgement(AGREES, why)
    error = stdev(ours) / math.sqrt(len(ours))
    lower = mean - (find_t_quantile(1 - LEVEL / 2, len(ours) - 1) * error if error else 0.0)
    return Judgement(BETTER if lower > limit else UNDECIDED, why, side=-1)


def judge_row(
    ours: Sequence[float], published: PublishedNumber, metric: str, *, over_splits: bool = False
) -> Judgement:
    """Judge a complete row by itself; differences await :func:`correct_judgements` [3].

    Args:
        ours: a score for each seed, or for each split.
        published: what the paper says.
        metric: name of the metric.
        over_splits: as for :func:`compare_with_published`.
    """
    if published.mean is None:
        if published.below is None and published.above is None:
            return Judgement("")
        return judge_bound(ours, published, metric)
    if published.chance is not None and published.mean <= published.chance + CHANCE_MARGIN:
        return judge_failure(ours, published.chance)
    interval = compare_with_published(ours, published, metric, over_splits=over_splits)
    sign = -1 if METRICS[metric].higher_is_better else 1
    side = sign * ((interval.difference > 0) - (interval.difference < 0))
    splits = len(ours) if over_splits else 0
    if interval.is_equivalent:
        return Judgement(AGREES, "within the margin", interval, interval.p, side, splits)
    return Judgement(UNDECIDED, "", interval, interval.p, side, splits)


def correct_judgements(rows: Sequence[Judgement], family: int) -> list[Judgement]:
    """Return judgements after Holm's correction [6].

    Args:
        rows: those of a table that are measured.
        family: rows of the table that enter the correction, measured or not.
    """
    tested = [row.p for row in rows if row.p is not None]
    corrected = iter(correct_by_holm([*tested, *[1.0] * max(0, family - len(tested))]))
    judgements = []
    for row in rows:
        if row.p is None:
            judgements.append(row)
            continue
        p = next(corrected)
        new = replace(row, p=p)
        if row.verdict == UNDECIDED and p < LEVEL:
            new = replace(new, verdict=WORSE if row.side > 0 else BETTER, why="beyond the margin")
        elif row.verdict == UNDECIDED:
            new = replace(new, why="shows neither a difference nor agreement within the margin")
        judgements.append(new)
    return judgements


def is_ahead(first: Sequence[float], second: Sequence[float], metric: str) -> float:
    """Return the one-sided probability, by Welch's test, of such a lead without a difference [9].

    Args:
        first: scores of the row that is said to be better.
        second: scores of the other.
        metric: name of the metric.
    """
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    parts = [stdev(scores) ** 2 / len(scores) for scores in (first, second)]
    error = math.sqrt(sum(parts))
    lead = sign * (fmean(first) - fmean(second))
    if not error:
        return 0.0 if lead > 0 else 1.0
    return find_t_tail(
        lead / error, find_welch_df(parts[0], len(first) - 1, parts[1], len(second) - 1)
    )
