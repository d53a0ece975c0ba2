"""Run the rows of a table, in processes and within a budget, and search their settings."""
