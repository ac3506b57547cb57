"""Google Kubernetes Engine: how its nodes are labelled and tainted."""

from __future__ import annotations

ACCELERATOR = "cloud.google.com/gke-accelerator"
SPOT = "cloud.google.com/gke-spot"

ACCELERATORS = (
    "nvidia-a100-80gb",
    "nvidia-b200",
    "nvidia-gb200",
    "nvidia-h100-80gb",
    "nvidia-h100-mega-80gb",
    "nvidia-h200-141gb",
    "nvidia-l4",
    "nvidia-rtx-pro-6000",
    "nvidia-tesla-a100",
    "nvidia-tesla-p100",
    "nvidia-tesla-p4",
    "nvidia-tesla-t4",
    "nvidia-tesla-v100",
)
"""The GPUs that node pools can have, by the values of the label `ACCELERATOR`."""

RESULTS_CLASS = "standard-rwx"
RESULTS_SIZE = "1Ti"
"""GKE's own class with ReadWriteMany, which is Filestore's, and the least that it gives."""
