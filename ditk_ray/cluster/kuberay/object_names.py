"""What Kubernetes takes as names and labels; pods inside a RayCluster are not checked by it."""

from __future__ import annotations

import re

MAX_CLUSTER_NAME = 53
MAX_JOB_NAME = 47
"""KubeRay's limits, which leave room for the names that it makes of them."""

MAX_LABEL = 63
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def name_problem(name: str, most: int) -> str:
    """Return what is wrong with the name of a cluster, a job or a group; empty if nothing."""
    if not _DNS_LABEL.fullmatch(name):
        return "has to begin with a small letter, and to go on with a-z, 0-9 and '-'"
    if len(name) > most:
        return f"has {len(name)} characters; {most} are allowed"
    return ""


def is_object_name(text: str) -> bool:
    """Tell whether an object such as a claim, a Secret or a storage class can have this name."""
    return bool(_SUBDOMAIN.fullmatch(text)) and len(text) <= 253


def is_label_key(text: str) -> bool:
    """Tell whether a text is a label's key, which may have a domain before it."""
    domain, slash, name = text.rpartition("/")
    has_domain = is_object_name(domain) if slash else True
    return has_domain and bool(_LABEL_NAME.fullmatch(name)) and len(name) <= MAX_LABEL


def is_label_value(text: str) -> bool:
    """Tell whether a text is a label's value."""
    return bool(_LABEL_VALUE.fullmatch(text)) and len(text) <= MAX_LABEL
