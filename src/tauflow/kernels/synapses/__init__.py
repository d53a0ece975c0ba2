"""The conductance-based LTC."""
