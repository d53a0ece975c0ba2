"""Options of ``tauflow run`` on how sure answers are."""

from typing import Annotated, Any

import typer

from tauflow.errors import ArgumentError

_PANEL = "How sure answers are"

EnsembleOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Networks of as many seeds; the mean answers.", rich_help_panel=_PANEL
    ),
]
CalibrateOption = Annotated[
    str | None,
    typer.Option(
        help="Correct probabilities on the validation split: temperature or isotonic.",
        rich_help_panel=_PANEL,
    ),
]
ThresholdOption = Annotated[
    str | None,
    typer.Option(
        help="When the positive one of two classes is predicted: f1, youden, cost=5 (a miss "
        "costs five false alarms), sensitivity=0.9, chosen on the validation split; or a "
        "probability.",
        rich_help_panel=_PANEL,
    ),
]
IntervalsOption = Annotated[
    str | None,
    typer.Option(
        help="Of values: conformal, the default with a validation split; quantile or gaussian, "
        "which learn how wide each interval has to be.",
        rich_help_panel=_PANEL,
    ),
]


def parse_threshold(text: str | None) -> Any:
    """Return the rule that ``--threshold`` stands for.

    Raises:
        ArgumentError: the value is not such an option.
    """
    if text in (None, "f1", "youden"):
        return text
    name, equals, number = str(text).rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = None
    if value is None or (equals and name not in ("cost", "sensitivity")):
        raise ArgumentError(
            f"--threshold {text} is no rule. Give f1, youden, cost=5, sensitivity=0.9 or a "
            "probability such as 0.3."
        )
    return {name: value} if equals else value


def parse_percentage(percent: float | None) -> float | None:
    """Return the share that ``--interval`` asks for in per cent.

    Raises:
        ArgumentError: it is not between 0 and 100, or may be meant as a share.
    """
    if percent is None:
        return None
    if not 1 <= percent < 100:
        raise ArgumentError(
            f"--interval {percent:g} is in per cent, from 1 to below 100. Give 90 for 90 %."
        )
    return percent / 100
