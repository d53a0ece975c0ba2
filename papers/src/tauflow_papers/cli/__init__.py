"""The command line of published tables."""
