"""The data sets of the papers that are made by a generator."""
