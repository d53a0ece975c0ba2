"""Sequences one step at a time, with the state kept between calls."""
