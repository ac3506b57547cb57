"""Showing a sweep: one page that opens without a network."""
