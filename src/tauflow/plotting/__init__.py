"""Style of plots: colours, axes, legends."""
