"""What the columns of answers are called, none of them as another."""

from collections.abc import Iterable, Sequence

from tauflow.errors import ArgumentError

from .options import FUTURE_NAME_FORMAT
from .schema_fields import SchemaFields


def list_key_columns(schema: SchemaFields, *, has_lead_times: bool) -> tuple[str, ...]:
    """Return the names of the columns in front of what a model predicts: id and times.

    Args:
        schema: of the table.
        has_lead_times: whether answers say what time they are for.
    """
    ids = () if schema.id is None else (schema.id,)
    if not (schema.per_step or schema.horizon):
        return ids
    name = schema.time or "row"
    later: tuple[str, ...] = ()
    if has_lead_times and schema.horizon:
        steps = range(1, schema.horizon + 1)
        later = tuple(FUTURE_NAME_FORMAT.format(name, step) for step in steps)
    elif has_lead_times:
        later = (f"{name} predicted",)
    return (*ids, name, *later)


def check_prediction_columns(schema: SchemaFields) -> None:
    """Raise :class:`ArgumentError` if answers would have two columns of one name.

    Classes are named by their target, or where probabilities are asked for, each by its own name.
    """
    named = schema.targets[:1] if schema.is_class else ()
    before = list_key_columns(schema, has_lead_times=schema.ahead is not None)
    check_distinct_columns(before, (*named, *schema.outputs))


def check_distinct_columns(key_columns: Sequence[str], predicted: Iterable[str]) -> None:
    """Raise :class:`ArgumentError` if a column in front has the name of what is predicted."""
    same = next((name for name in predicted if name in key_columns), None)
    if same is not None:
        raise ArgumentError(
            f"answers would have two columns called {same!r}: they begin with "
            f"{', '.join(map(repr, key_columns))}, and a class or value to predict is called so, "
            "too. Give one of them another name in the table that the model learns from."
        )
