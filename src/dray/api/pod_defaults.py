"""Defaults that the server fills into a Pod, and into the pod templates of other kinds."""

from __future__ import annotations

from typing import Any

from dray.api.cluster_defaults import volume_claim
from dray.api.names import is_node_allocatable
from dray.api.quantity import Quantity

Document = dict[str, Any]


def pod(document: Document) -> Document:
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    made = {**document, "spec": pod_spec({"enableServiceLinks": True, **spec}, fill_requests=True)}
    return document if made == document else made


def controller(document: Document) -> Document:
    """Defaults of ReplicaSet and similar kinds, and of their pod templates."""
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    kind = document["kind"]
    given = {key: value for key, value in spec.items() if value is not None}
    made = {**_CONTROLLER_DEFAULTS.get(kind, {}), **given}
    if kind in _ROLLING:
        key, parts = _ROLLING[kind]
        made[key] = _update_strategy(given.get(key) or {}, parts)
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        made["template"] = _template(template)
    if kind == "Job":
        return _job(document, _with_condition_states(made))
    if kind == "StatefulSet":
        made["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
            **(given.get("persistentVolumeClaimRetentionPolicy") or {}),
        }
        if made.get("volumeClaimTemplates"):
            made["volumeClaimTemplates"] = [_claim_template(claim) for claim in made["volumeClaimTemplates"]]
    if kind == "ReplicationController":
        return _replication_controller(document, made)
    return document if made == spec else {**document, "spec": made}


def _template(template: Document) -> Document:
    """Removes the creation time, which clients written in Go send as null."""
    made = {**template, "spec": pod_spec(template["spec"], fill_requests=False)}
    metadata = template.get("metadata")
    if isinstance(metadata, dict) and metadata.get("creationTimestamp", "") is None:
        made["metadata"] = {key: value for key, value in metadata.items() if key != "creationTimestamp"}
    return made


def cron_job(document: Document) -> Document:
    spec = document.get("spec")
    if not isinstance(spec, dict):
        return document
    made = {**_CRON_JOB_DEFAULTS, **{key: value for key, value in spec.items() if value is not None}}
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    template = job.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        job = _with_condition_states({**job, "template": _template(template)})
        made["jobTemplate"] = {**spec["jobTemplate"], "spec": job}
    return document if made == spec else {**document, "spec": made}


def _with_condition_states(job: Document) -> Document:
    """A rule about a condition of a failed pod means that the condition holds."""
    policy = job.get("podFailurePolicy")
    if not isinstance(policy, dict) or not policy.get("rules"):
        return job
    return {**job, "podFailurePolicy": {**policy, "rules": [_with_states(rule) for rule in policy["rules"]]}}


def _with_states(rule: Document) -> Document:
    patterns = rule.get("onPodConditions")
    if not patterns:
        return rule
    return {**rule, "onPodConditions": [{**each, "status": each.get("status") or "True"} for each in patterns]}


def pod_template(document: Document) -> Document:
    template = document.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return document
    return {**document, "template": _template(template)}


def _claim_template(claim: Document) -> Document:
    return volume_claim({**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim"})


def _replication_controller(document: Document, spec: Document) -> Document:
    """Its selector and its labels are by default the labels of its template."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels and not spec.get("selector"):
        spec["selector"] = labels
    metadata = document.get("metadata") or {}
    if labels and not metadata.get("labels"):
        document = {**document, "metadata": {**metadata, "labels": labels}}
    return {**document, "spec": spec}


def _update_strategy(given: Document, parts: Document) -> Document:
    made = {**given, "type": given.get("type") or "RollingUpdate"}
    if made["type"] == "RollingUpdate":
        said = {key: value for key, value in (given.get("rollingUpdate") or {}).items() if value is not None}
        made["rollingUpdate"] = {**parts, **said}
    return made


def _job(document: Document, spec: Document) -> Document:
    """One completion and one pod at a time by default, and the template's labels if the job has none."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _NO_LIMIT if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    metadata = document.get("metadata") or {}
    template = spec.get("template")
    labels = (template.get("metadata") or {}).get("labels") if isinstance(template, dict) else None
    if labels and not metadata.get("labels"):
        document = {**document, "metadata": {**metadata, "labels": labels}}
    return document if spec == document["spec"] else {**document, "spec": spec}


_NO_LIMIT = 2**31 - 1
# The field in which each kind says how it replaces its pods, and the default of a rolling update.
_ROLLING: dict[str, tuple[str, Document]] = {
    "Deployment": ("strategy", {"maxUnavailable": "25%", "maxSurge": "25%"}),
    "StatefulSet": ("updateStrategy", {"partition": 0, "maxUnavailable": 1}),
    "DaemonSet": ("updateStrategy", {"maxUnavailable": 1, "maxSurge": 0}),
}
_CRON_JOB_DEFAULTS: Document = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
_CONTROLLER_DEFAULTS: dict[str, Document] = {
    "ReplicaSet": {"replicas": 1},
    "ReplicationController": {"replicas": 1},
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "StatefulSet": {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
    },
    "DaemonSet": {
        "revisionHistoryLimit": 10,
    },
    "Job": {
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
    },
}


def pod_spec(spec: Document, *, fill_requests: bool) -> Document:
    """`fill_requests`: a pod asks for at least what it limits itself to; a template keeps what was written."""
    made: Document = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    made |= {key: value for key, value in spec.items() if value != "" or key not in made}
    for key in ("containers", "initContainers", "ephemeralContainers"):
        if made.get(key):
            made[key] = [_container(c, bool(spec.get("hostNetwork")), fill_requests) for c in made[key]]
    if fill_requests and isinstance(made.get("resources"), dict):
        made["resources"] = _pod_level(
            made["resources"], made.get("containers") or [], made.get("initContainers") or []
        )
    if made.get("volumes"):
        made["volumes"] = [_volume(volume) for volume in made["volumes"]]
    if account := made.get("serviceAccountName") or made.get("serviceAccount"):
        # The one is an older name of the other.
        made["serviceAccountName"] = made["serviceAccount"] = account
    return made


def _container(container: Document, on_host_network: bool, fill_requests: bool) -> Document:
    made: Document = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": _pull_policy(container.get("image") or ""),
        "resources": {},
    }
    made |= container
    if fill_requests:
        made["resources"] = _with_requests(made["resources"])
    if made.get("ports"):
        made["ports"] = [_port(port, on_host_network) for port in made["ports"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(made.get(probe), dict):
            made[probe] = _probe(made[probe])
    if made.get("env"):
        made["env"] = [_environment(variable) for variable in made["env"]]
    return made


def _pull_policy(image: str) -> str:
    """Always for the tag `latest`, written or implied, unless a digest pins the image."""
    name = image.rpartition("/")[2]
    if "@" in name:
        return "IfNotPresent"
    tag = name.partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _with_requests(resources: Document) -> Document:
    limits = resources.get("limits")
    if not limits:
        return resources
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def _pod_level(resources: Document, containers: list[Document], init_containers: list[Document]) -> Document:
    """Pod-level requests default to what the containers ask for, or else to the pod-level limits."""
    said = resources.get("requests") or {}
    asked = {
        name: str(amount) for name, amount in _asked(containers, init_containers).items() if name in ("cpu", "memory")
    }
    limits = {name: limit for name, limit in (resources.get("limits") or {}).items() if is_node_allocatable(name)}
    made = {**limits, **asked, **said}
    return resources if made == said else {**resources, "requests": made}


def _asked(containers: list[Document], init_containers: list[Document]) -> dict[str, Quantity]:
    """What the containers need at their peak: all that run together, or the largest init container if that is more."""
    running: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in init_containers:
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            running = _sum(running, own)
            peak = _larger(peak, running)
        else:
            peak = _larger(peak, _sum(running, own))
    for container in containers:
        running = _sum(running, _requests(container))
    return _larger(peak, running)


def _requests(container: Document) -> dict[str, Quantity]:
    return {name: Quantity.parse(q) for name, q in ((container.get("resources") or {}).get("requests") or {}).items()}


def _sum(a: dict[str, Quantity], b: dict[str, Quantity]) -> dict[str, Quantity]:
    return {**a, **{name: a[name] + amount if name in a else amount for name, amount in b.items()}}


def _larger(a: dict[str, Quantity], b: dict[str, Quantity]) -> dict[str, Quantity]:
    return {**a, **{name: amount for name, amount in b.items() if name not in a or amount > a[name]}}


def _port(port: Document, on_host_network: bool) -> Document:
    made = {"protocol": "TCP", **port}
    if on_host_network and not made.get("hostPort") and made.get("containerPort"):
        made["hostPort"] = made["containerPort"]
    return made


def _probe(probe: Document) -> Document:
    made = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, **probe}
    if isinstance(made.get("httpGet"), dict):
        made["httpGet"] = {"path": "/", "scheme": "HTTP", **made["httpGet"]}
    if isinstance(made.get("grpc"), dict):
        made["grpc"] = {"service": "", **made["grpc"]}
    return made


def _environment(variable: Document) -> Document:
    source = variable.get("valueFrom")
    if not isinstance(source, dict) or not isinstance(source.get("fieldRef"), dict):
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


_MODE = 0o644
_VOLUME_MODES = ("secret", "configMap", "downwardAPI", "projected")


def _volume(volume: Document) -> Document:
    if not any(value is not None for key, value in volume.items() if key != "name"):
        return {**volume, "emptyDir": {}}
    for source in _VOLUME_MODES:
        if isinstance(volume.get(source), dict):
            made = {"defaultMode": _MODE, **volume[source]}
            if source == "projected" and made.get("sources"):
                made["sources"] = [_projection(s) for s in made["sources"]]
            return {**volume, source: made}
    if isinstance(volume.get("hostPath"), dict):
        return {**volume, "hostPath": {"type": "", **volume["hostPath"]}}
    return volume


def _projection(source: Document) -> Document:
    token = source.get("serviceAccountToken")
    if not isinstance(token, dict):
        return source
    return {**source, "serviceAccountToken": {"expirationSeconds": 3600, **token}}
