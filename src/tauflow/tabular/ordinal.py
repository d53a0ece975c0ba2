"""Targets that are classes with an order, as a user says it."""

from collections.abc import Mapping, Sequence

from tauflow.errors import ArgumentError

Ordinal = Mapping[str, Sequence[str]] | Sequence[str]


def parse_class_orders(
    ordinal: Ordinal | None, targets: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the ordinal targets with their classes in order, ``()`` where numbers say it.

    Args:
        ordinal: see :class:`tauflow.data.TableOptions`.
        targets: names of columns, in which an equals sign is no separator.
    """
    if isinstance(ordinal, Mapping):
        return {name: tuple(map(str, classes)) for name, classes in ordinal.items()}
    found = {}
    for text in ordinal or ():
        name, sign, classes = (text, "", "") if text in targets else text.partition("=")
        found[name] = tuple(classes.split("<")) if sign else ()
    return found


def check_class_orders(ordinal: Ordinal, targets: Sequence[str], *, is_allowed: bool) -> None:
    """Raise :class:`ArgumentError` if columns are no targets, or their classes no order.

    Args:
        ordinal: as for :func:`parse_class_orders`.
        targets: likewise.
        is_allowed: whether the task may have such targets.
    """
    if isinstance(ordinal, str) or not ordinal:
        raise ArgumentError(
            f"ordinal must be a list of columns, such as ['grade=low<high'], got {ordinal!r}."
        )
    orders = parse_class_orders(ordinal, targets)
    wrong = next((name for name in orders if name not in targets), None)
    if wrong is not None:
        raise ArgumentError(f"ordinal names {wrong!r}, which is no target. Name it as one.")
    if not is_allowed:
        raise ArgumentError(
            "ordinal is for classes with an order, and neither for forecasts nor beside "
            "task='classification' or 'regression'. Leave one of them out."
        )
    for name, classes in orders.items():
        if len(classes) == 1 or len(set(classes)) < len(classes):
            raise ArgumentError(
                f"ordinal gives {name!r} the classes {', '.join(classes)}. Write each once, at "
                "least two, such as 'grade=low<medium<high'."
            )
