"""The names of the files in a trial's folder."""

CONFIG_FILE = "config.py"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.pkl"
RESULT_VALUE_FILE = "result.json"
LOG_FILE = "log.txt"

FAILURES_FILE = "failures.jsonl"
"""A line for each attempt that failed."""

CANCEL_FILE = "cancel"
"""Whoever creates it ends the trial."""

SAVE_FILE = "save"
"""While it exists, every evaluation has a checkpoint."""

CHECKPOINTS_FOLDER = "checkpoints"
"""A folder for each checkpoint, by number."""

META_FILE = "meta.json"
"""In a checkpoint: what it is of, and which files belong to it."""
