"""Which labels a node may give itself."""

ALWAYS_RESTRICTED = "node-restriction.kubernetes.io"
_ALLOWED = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/windows-build",
    }
)
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")


def is_restricted(key: str, *, on_creation: bool) -> bool:
    """Labels below kubernetes.io and k8s.io steer workloads; a node sets only those it may know about itself.

    At creation only the strictly reserved domain is refused, since kubelets register with labels of all kinds.
    """
    domain = key.partition("/")[0] if "/" in key else ""
    if _is_below(domain, ALWAYS_RESTRICTED):
        return True
    if on_creation or not (_is_below(domain, "kubernetes.io") or _is_below(domain, "k8s.io")):
        return False
    return key not in _ALLOWED and not any(_is_below(domain, allowed) for allowed in _ALLOWED_DOMAINS)


def _is_below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")
