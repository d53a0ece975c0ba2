"""Data sets that are generated."""
