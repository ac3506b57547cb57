"""The names of the files in a trial's folder."""

CONFIG_FILE = "config.py"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.pkl"
RESULT_VALUE_FILE = "result.json"
LOG_FILE = "log.txt"
