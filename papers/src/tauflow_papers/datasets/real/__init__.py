"""Data sets that come from files."""
