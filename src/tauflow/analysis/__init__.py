"""Look at networks: pictures of wirings."""

from .plots import draw_wiring

__all__ = ["draw_wiring"]
