"""How many tries a harness makes, and the sum of all tries below the results of a run."""

from collections import Counter
from collections.abc import Callable

import pytest

_PREFIX = "tried: "


@pytest.fixture
def tries(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[..., int]:
    """Return ``tries(what, few=..., full=...)``: the number of tries to make of ``what``.

    ``few`` in ``make test``, ``full`` under ``--full``. A run prints the sum for each ``what``.
    """

    def count(what: str, *, few: int, full: int) -> int:
        number = full if request.config.getoption("--full") else few
        record_property(_PREFIX + what, number)
        return number

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was tried by the tests that passed, and how often."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name.startswith(_PREFIX):
                sums[name.removeprefix(_PREFIX)] += value
    if sums:
        terminalreporter.section("tried and survived")
        for name, number in sorted(sums.items()):
            terminalreporter.write_line(f"{number:>10,}  {name}")
