"""Compile one step of a model to C: a graph of lanes, loops over it, floats or integers."""
