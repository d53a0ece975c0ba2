"""Whole models of the zoo."""
