"""The names of the files in a trial's folder; for those who only read them."""

CONFIG_FILE = "config.py"
METRICS_FILE = "metrics.jsonl"
RESULT_FILE = "result.pkl"
LOG_FILE = "log.txt"
