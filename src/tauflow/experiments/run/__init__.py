"""Run what a specification says: jobs, in processes and budgets, and their results."""
