"""Tables of a user's own: how their cells, times, targets and parts are read."""
