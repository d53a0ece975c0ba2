"""Other libraries' names and signatures on tauflow's modules, to be imported in their place."""

__all__: list[str] = []
