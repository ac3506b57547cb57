"""What stands around a Ray cluster: its account, its network policy, its claims, its MLflow."""

from __future__ import annotations

from ditk_ray.cluster.kuberay.launch_options import LaunchOptions, RunOptions
from ditk_ray.cluster.kuberay.ray_cluster_manifest import ray_cluster, use_pull_secret
from ditk_ray.cluster.kuberay.ray_job_manifest import ray_job
from ditk_ray.cluster.kuberay.shipped_manifests import labels_of, named, read_manifests
from ditk_ray.kube.labels import CLUSTER
from ditk_ray.kube.objects import Manifest

_HOSTS = "--allowed-hosts="


def launch_manifests(options: LaunchOptions) -> list[Manifest]:
    """Return all that makes up a cluster, in the order in which it is sent."""
    return [*_surroundings(options), ray_cluster(options)]


def run_manifests(options: LaunchOptions, run: RunOptions) -> list[Manifest]:
    """Return all that makes up a job with a cluster of its own, in the order of sending."""
    return [*_surroundings(options), ray_job(options, run)]


def _surroundings(options: LaunchOptions) -> list[Manifest]:
    """Return what has to be there before the pods: the policy first, so that none is open."""
    return [
        _network_policy(options),
        *_access(options),
        *_results(options),
        *(_mlflow(options) if options.has_mlflow else []),
    ]


def _access(options: LaunchOptions) -> list[Manifest]:
    name = f"{options.name}-ray"
    found = read_manifests("access.yaml")
    binding = found["RoleBinding"]
    binding["roleRef"]["name"] = name
    binding["subjects"][0].update(name=name, namespace=options.namespace)
    kinds = ("ServiceAccount", "Role", "RoleBinding")
    return [named(found[kind], name, options) for kind in kinds]


def _network_policy(options: LaunchOptions) -> Manifest:
    policy = read_manifests("network_policy.yaml")["NetworkPolicy"]
    spec = policy["spec"]
    spec["podSelector"]["matchLabels"][CLUSTER] = options.name
    spec["ingress"][0]["from"][0]["podSelector"]["matchLabels"][CLUSTER] = options.name
    return named(policy, f"{options.name}-ray", options)


def _results(options: LaunchOptions) -> list[Manifest]:
    """Return the claim, unless there is one already."""
    if options.results.existing_claim is not None:
        return []
    claim = read_manifests("results_claim.yaml")["PersistentVolumeClaim"]
    spec = claim["spec"]
    spec["resources"]["requests"]["storage"] = options.results.size
    if options.results.storage_class is not None:
        spec["storageClassName"] = options.results.storage_class
    return [named(claim, options.results_claim, options)]


def _mlflow(options: LaunchOptions) -> list[Manifest]:
    name = f"{options.name}-mlflow"
    found = read_manifests("mlflow.yaml")
    found["Service"]["spec"]["selector"][CLUSTER] = options.name
    _fill_server(found["Deployment"], name, options)
    kinds = ("PersistentVolumeClaim", "Service", "Deployment")
    return [named(found[kind], name, options) for kind in kinds]


def _known_hosts(name: str, namespace: str) -> list[str]:
    """Return by which names MLflow is reached: a pattern for more would let strangers in.

    They are those of its Service, and loopback's, whose port `cluster forward` chooses.
    """
    within = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
    own = [f"{name}{end}{port}" for end in within for port in ("", ":5000")]
    return [*own, "localhost:*", "127.0.0.1:*"]


def _fill_server(deployment: Manifest, name: str, options: LaunchOptions) -> None:
    spec = deployment["spec"]
    spec["selector"]["matchLabels"][CLUSTER] = options.name
    spec["template"]["metadata"]["labels"].update(labels_of(options.name))
    pod = spec["template"]["spec"]
    use_pull_secret(pod, options)
    (container,) = pod["containers"]
    container["image"] = options.image
    kept = [argument for argument in container["args"] if not argument.startswith(_HOSTS)]
    container["args"] = [*kept, _HOSTS + ",".join(_known_hosts(name, options.namespace))]
    (volume,) = pod["volumes"]
    volume["persistentVolumeClaim"]["claimName"] = name
