"""What the columns of answers are called, none of them as another."""

from collections.abc import Iterable, Sequence

from tauflow.data.card import DatasetCard
from tauflow.errors import ArgumentError

from .info import TableInfo
from .options import AFTER, TableOptions


def names_before(options: TableOptions, card: DatasetCard, *, ahead: bool) -> tuple[str, ...]:
    """Return the names of the columns in front of what a model predicts: id and times.

    Args:
        options: what was said of the table.
        card: of the data.
        ahead: whether answers say what time they are for.
    """
    ids = () if options.id is None else (options.id,)
    if not (card.per_step or card.horizon):
        return ids
    name = options.time or "row"
    later: tuple[str, ...] = ()
    if ahead and card.horizon:
        later = tuple(AFTER.format(name, step) for step in range(1, card.horizon + 1))
    elif ahead:
        later = (f"{name} predicted",)
    return (*ids, name, *later)


def check_answers(info: TableInfo, card: DatasetCard) -> None:
    """Raise :class:`ArgumentError` if answers would have two columns of one name.

    Classes are named by their target, or where chances are asked for, each by its own name.
    """
    named = info.options.targets[:1] if info.y_scale is None else ()
    before = names_before(info.options, card, ahead=info.ahead is not None)
    refuse_same(before, (*named, *info.outputs))


def refuse_same(before: Sequence[str], predicted: Iterable[str]) -> None:
    """Raise :class:`ArgumentError` if a column in front has the name of what is predicted."""
    same = next((name for name in predicted if name in before), None)
    if same is not None:
        raise ArgumentError(
            f"answers would have two columns called {same!r}: they begin with "
            f"{', '.join(map(repr, before))}, and a class or value to predict is called so, too. "
            "Give one of them another name in the table that the model learns from."
        )
