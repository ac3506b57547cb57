"""Ray clusters on Kubernetes: making, finding, reaching and deleting what KubeRay runs."""
