"""Putting a sweep together from a `JobSpec` and options, and running it."""
