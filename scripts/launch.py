"""Make a Ray cluster: `python scripts/launch.py ...` is `ditk-ray cluster launch ...`."""

import sys
from pathlib import Path

try:
    import ditk_ray  # noqa: F401
except ModuleNotFoundError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ditk_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["cluster", "launch", *sys.argv[1:]]))
