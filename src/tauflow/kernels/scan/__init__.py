"""Linear diagonal recurrences over whole sequences, in parallel."""
