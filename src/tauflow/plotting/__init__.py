"""How every picture looks: colours, axes, legends."""
