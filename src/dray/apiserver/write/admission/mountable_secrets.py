"""Service accounts whose pods may use no Secrets but those that the account names."""

from collections.abc import Iterator

from dray.api.safe_get import Document, mappings, name_of, part, text, texts

MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
TRUE = ("1", "t", "T", "true", "TRUE", "True")
CONTAINERS = {
    "initContainers": "init container",
    "containers": "container",
    "ephemeralContainers": "ephemeral container",
}


def forbidden_secret(account: Document, pod: Document | None) -> str:
    """Why the pod of an account with the annotation may not use one of its Secrets; empty if it may use all."""
    if texts(account, "metadata", "annotations").get(MOUNTABLE_SECRETS) not in TRUE:
        return ""
    allowed = {text(secret, "name") for secret in mappings(account, "secrets")}
    for secret, user in _secrets(pod):
        if secret not in allowed:
            why = f"service account {name_of(account)} does not reference that secret"
            return f'{user} secret.secretName="{secret}" is not allowed because {why}'
    allowed = {text(secret, "name") for secret in mappings(account, "imagePullSecrets")}
    for i, reference in enumerate(mappings(pod, "spec", "imagePullSecrets")):
        if (secret := text(reference, "name")) not in allowed:
            why = f"service account {name_of(account)} does not reference that imagePullSecret"
            return f'imagePullSecrets[{i}].name="{secret}" is not allowed because {why}'
    return ""


def _secrets(pod: Document | None) -> Iterator[tuple[str, str]]:
    """Names of Secrets, and the words for what uses them."""
    for volume in mappings(pod, "spec", "volumes"):
        if volume.get("secret") is not None:
            yield text(volume, "secret", "secretName"), "volume with"
    for field, words in CONTAINERS.items():
        for container in mappings(pod, "spec", field):
            who = f"{words} {text(container, 'name')}"
            for variable in mappings(container, "env"):
                if part(variable, "valueFrom", "secretKeyRef") is not None:
                    name = text(variable, "valueFrom", "secretKeyRef", "name")
                    yield name, f"{who} with envVar {text(variable, 'name')} referencing"
            for source in mappings(container, "envFrom"):
                if source.get("secretRef") is not None:
                    yield text(source, "secretRef", "name"), f"{who} with envFrom referencing"
