"""What every kernel is run by: programs, one node of the graph, one pair of operators."""
