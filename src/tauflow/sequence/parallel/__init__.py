"""Long sequences in parallel over chunks of time, and their gradients."""
