"""What the papers claim, what was measured of it here, and the verdict."""
