import logging

import pytest


@pytest.fixture(autouse=True, scope="session")
def _without_the_tracers_log():
    """Spare torch the text of every graph it traces, which pytest would keep for a failure."""
    logger = logging.getLogger("torch.__trace")
    was, logger.propagate = logger.propagate, False
    yield
    logger.propagate = was
