"""The losses and metrics of the library, without those that other packages have added."""


def list_own(registry):
    """Return the names that the library registers; other packages may add theirs."""
    return [name for name, score in registry.items() if is_own(score)]


def is_own(score):
    functions = [value for value in vars(score).values() if callable(value)]
    return all(one.__module__.startswith("tauflow.") for one in functions)
