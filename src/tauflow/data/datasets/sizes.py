"""How many sequences a generator makes."""

from collections.abc import Sequence

from tauflow._internal.checks import check_at_least
from tauflow.errors import ArgumentError


def check_sizes(sizes: Sequence[int]) -> tuple[int, int, int]:
    """Return the numbers of training, validation and test sequences.

    Raises:
        ArgumentError: they are not three integers, or one is too small; validation may be 0.
    """
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or len(sizes) != 3:
        raise ArgumentError(
            f"sizes must be three numbers, for training, validation and test, got {sizes!r}."
        )
    train, valid, test = sizes
    return (
        check_at_least(1, train_size=train),
        check_at_least(0, valid_size=valid),
        check_at_least(1, test_size=test),
    )
