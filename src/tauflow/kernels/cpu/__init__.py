"""What compiled loops of the CPU are made of."""
