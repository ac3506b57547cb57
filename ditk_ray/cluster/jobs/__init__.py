"""Sending jobs to Ray clusters: which clusters, the code, the job API, following to the end."""
