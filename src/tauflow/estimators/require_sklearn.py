"""What the estimators cannot do without, asked for with the words of how to get it."""

from tauflow._internal.optional_deps import require

require("sklearn", extra="sklearn")
