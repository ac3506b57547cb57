"""Find Ray clusters on Kubernetes and write them to ~/.cluster_config, as Isaac Lab's script does.

    python scripts/grok_cluster_with_kubectl.py

It is `ditk-ray cluster discover`, and in spite of its name needs no kubectl.
"""

import sys
from pathlib import Path

try:
    import ditk_ray  # noqa: F401
except ModuleNotFoundError:  # a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ditk_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["cluster", "discover", *sys.argv[1:]]))
