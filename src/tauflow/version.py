"""The library's version, which files, reports and the command line name."""

from importlib import metadata

try:
    VERSION = metadata.version("tauflow")
except metadata.PackageNotFoundError:  # a source tree on the path
    VERSION = "0+unknown"
