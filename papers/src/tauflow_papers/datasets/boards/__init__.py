"""Small tasks of the leaderboards: tables whose parts are drawn by a seed."""
