"""What the estimators cannot do without, asked for with the words of how to get it."""

from tauflow.extras import require

require("sklearn", extra="sklearn")
