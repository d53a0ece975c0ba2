"""Interfaces of other libraries, implemented by tauflow's modules.

Import them by their names, as each needs its library: ``from tauflow.compat.sktime import
SktimeClassifier``; others are aeon, ncps, pyrregular, rsl_rl, sb3, skorch, torch_nn and torchrl.
"""

__all__: list[str] = []
