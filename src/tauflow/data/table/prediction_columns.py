"""What the columns of answers are called, none of them as another."""

from collections.abc import Iterable, Sequence

from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError

from .info import TableInfo
from .options import FUTURE_NAME_FORMAT, TableOptions


def list_key_columns(
    options: TableOptions, card: DatasetCard, *, has_lead_times: bool
) -> tuple[str, ...]:
    """Return the names of the columns in front of what a model predicts: id and times.

    Args:
        options: what was said of the table.
        card: of the data.
        has_lead_times: whether answers say what time they are for.
    """
    ids = () if options.id is None else (options.id,)
    if not (card.per_step or card.horizon):
        return ids
    name = options.time or "row"
    later: tuple[str, ...] = ()
    if has_lead_times and card.horizon:
        later = tuple(FUTURE_NAME_FORMAT.format(name, step) for step in range(1, card.horizon + 1))
    elif has_lead_times:
        later = (f"{name} predicted",)
    return (*ids, name, *later)


def check_prediction_columns(info: TableInfo, card: DatasetCard) -> None:
    """Raise :class:`ArgumentError` if answers would have two columns of one name.

    Classes are named by their target, or where probabilities are asked for, each by its own name.
    """
    named = info.options.targets[:1] if info.y_scale is None else ()
    before = list_key_columns(info.options, card, has_lead_times=info.ahead is not None)
    check_distinct_columns(before, (*named, *info.outputs))


def check_distinct_columns(key_columns: Sequence[str], predicted: Iterable[str]) -> None:
    """Raise :class:`ArgumentError` if a column in front has the name of what is predicted."""
    same = next((name for name in predicted if name in key_columns), None)
    if same is not None:
        raise ArgumentError(
            f"answers would have two columns called {same!r}: they begin with "
            f"{', '.join(map(repr, key_columns))}, and a class or value to predict is called so, "
            "too. "
            "Give one of them another name in the table that the model learns from."
        )
