"""Cells of the zoo: one time step of each, with its equations and source."""
