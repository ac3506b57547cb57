"""Run a sweep: `python scripts/tune.py --cfg_class NAME` is `ditk-ray tune --cfg_class NAME`."""

import sys
from pathlib import Path

try:
    import ditk_ray  # noqa: F401
except ModuleNotFoundError:  # a checkout that was shipped to a cluster, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ditk_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
