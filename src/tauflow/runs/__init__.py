"""Runs: train a model on a data set or a table, tune it, and keep its records on disk."""
