"""A stand-in for what is missing behind the tests' API server: operator, scheduler, kubelets.

Nothing here is DI-orchestrator or Kubernetes. It does what they do to DIJobs and pods as far as
somebody who submits and watches DIJobs can see it.
"""

from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated

__all__ = ["Simulated", "StandInCluster"]
