"""Interfaces of other libraries, implemented by tauflow's modules."""

__all__: list[str] = []
