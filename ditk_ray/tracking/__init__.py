"""Remembering a sweep: its record on disk, and MLflow."""
