"""Say what came out: ours beside published, pages with pictures, and one report on all."""
