"""Makes :mod:`tiny_experiment` importable from the folders below."""
