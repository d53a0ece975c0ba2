"""Exceptions that tauflow raises.

Each class also inherits the closest builtin, so that ``except ValueError`` works. Each message says
what was wrong, what was expected and what to do.
"""


class TauflowError(Exception):
    """Base of all errors raised on purpose by tauflow."""


class ArgumentError(TauflowError, ValueError):
    """An argument has a value outside its range, or two arguments contradict each other."""


class ShapeError(TauflowError, ValueError):
    """A tensor has the wrong shape."""


class DtypeError(TauflowError, TypeError):
    """A tensor has the wrong dtype."""


class TimeError(TauflowError, ValueError):
    """Times are not finite, or run backwards."""


class UnknownNameError(TauflowError, LookupError):
    """A name is not in the catalog it was looked up in."""


class TimeUnitWarning(UserWarning):
    """Time steps are counted in a unit that is far from the time constants of the model."""


class ShiftWarning(UserWarning):
    """A table to predict is unlike the one that the model was trained on, as in other units."""


class WiringError(TauflowError, ValueError):
    """A wiring cannot be built with these sizes."""


class DataError(TauflowError, ValueError):
    """A data file was read but does not hold what it should."""


class DataNotFoundError(TauflowError, FileNotFoundError):
    """A data file is neither on disk nor obtainable."""


class ChecksumError(TauflowError, OSError):
    """A file's bytes are not the published ones."""


class NonFiniteError(TauflowError, ArithmeticError):
    """A loss, a parameter, or a state after too long a time step, is NaN or infinite."""


class CheckpointError(TauflowError, RuntimeError):
    """A checkpoint cannot be read, or belongs to another run."""


class BusyError(TauflowError, RuntimeError):
    """Another program is writing to the same folder."""


class ModelFileError(TauflowError, ValueError):
    """A model file is damaged, truncated or from a newer version."""


class SpecificationError(TauflowError, ValueError):
    """An experiment specification has an unknown key or an impossible value."""


class SolverError(TauflowError, RuntimeError):
    """An adaptive solver could not reach the end of the time step at the tolerances asked for."""


class BackendError(TauflowError, RuntimeError):
    """A backend asked for by name cannot serve this call."""


class StreamError(TauflowError, RuntimeError):
    """A module cannot run sample by sample, or changed while it did."""


class ExportError(TauflowError, RuntimeError):
    """A model cannot leave Python as asked, or what left it does not compute the same."""


class MissingExtraError(TauflowError, ImportError):
    """An optional dependency is not installed."""


class OptionError(TauflowError, TypeError):
    """A constructor was given an option that it does not have."""
