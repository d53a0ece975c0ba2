"""Helpers shared by the whole library; nothing here is public."""
