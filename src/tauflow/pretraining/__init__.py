"""A forecaster trained on generated series: the generator, the network, and its training.

Nothing of it is fitted to real series. ``python -m tauflow.pretraining train FOLDER`` trains, and
goes on where a killed run stopped; ``python -m tauflow.pretraining export FOLDER FILE`` writes the
weights.
"""
