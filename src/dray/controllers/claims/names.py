"""The name of a claim that is made for a pod."""

# The server appends five random characters and cuts the whole at 63; one more stays for a hyphen of its own.
MAX_BASE = 57


def generate_name(pod_name: str, pod_claim_name: str) -> str:
    """`<pod>-<claim>-`, with both parts shortened in proportion where the whole would be too long."""
    name = f"{pod_name}-{pod_claim_name}-"
    if len(name) <= MAX_BASE:
        return name
    # One letter of the pod's name stays even where its share would be none: a name cannot start with a hyphen.
    pod_part = pod_name[: max(1, len(pod_name) * MAX_BASE // len(name))]
    claim_part = pod_claim_name[: len(pod_claim_name) * MAX_BASE // len(name)]
    return f"{pod_part}-{claim_part}"
