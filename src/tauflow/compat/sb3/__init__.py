"""Recurrent policies for Stable-Baselines3: ``RecurrentPPO`` of sb3-contrib with any cell."""

from .policy import RecurrentPolicy

__all__ = ["RecurrentPolicy"]
