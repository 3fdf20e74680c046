"""Cells of the tables of the kinds around pods: network, volumes, autoscaling, flow control, certificates, webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from dray.apiserver.read.workload_cells import age, selector_text

Document = dict[str, Any]
Cells = Callable[[Document, datetime], list[Any]]

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"
SHOWN = 3


def _at(document: Document, *path: str) -> Any:
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _name(document: Document) -> str:
    return str(document["metadata"].get("name", ""))


def _age(document: Document, now: datetime) -> str:
    return age(document["metadata"].get("creationTimestamp"), now)


def _spec_cells(*fields: str, missing: Any = "") -> Cells:
    """Name, these fields of the spec, age."""

    def cells(document: Document, now: datetime) -> list[Any]:
        spec = document.get("spec") or {}
        return [_name(document), *(spec.get(field, missing) for field in fields), _age(document, now)]

    return cells


def _first(texts: Iterable[str], limit: int = SHOWN) -> str:
    """The first few, and how many more there are."""
    found = list(texts)
    more = f" + {len(found) - limit} more..." if len(found) > limit else ""
    return ",".join(found[:limit]) + more


# --- network ---------------------------------------------------------------------------------------------------------


def _endpoints(document: Document, now: datetime) -> list[Any]:
    found: list[str] = []
    for subset in document.get("subsets") or ():
        addresses = [str(entry.get("ip", "")) for entry in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        found += [_host_port(ip, port.get("port")) for port in ports for ip in addresses] if ports else addresses
    text = _first(found) if document.get("subsets") else NONE
    return [_name(document), text, _age(document, now)]


def _host_port(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _endpoint_slice(document: Document, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or "*") for port in document.get("ports") or ()]
    addresses = [address for entry in document.get("endpoints") or () for address in entry.get("addresses") or ()]
    return [
        _name(document), document.get("addressType", ""), _first(ports) or UNSET, _first(addresses) or UNSET,
        _age(document, now),
    ]  # fmt: skip


def _ingress(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    hosts = [rule["host"] for rule in spec.get("rules") or () if rule.get("host")]
    addresses = [
        entry.get("ip") or entry.get("hostname") or ""
        for entry in _at(document, "status", "loadBalancer", "ingress") or ()
    ]
    return [
        _name(document), spec.get("ingressClassName") or NONE, _first(hosts) or "*", ",".join(addresses),
        "80, 443" if spec.get("tls") else "80", _age(document, now),
    ]  # fmt: skip


DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"


def _ingress_class(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    parameters = spec.get("parameters")
    text = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        text = f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"
    return [_marked_default(document, DEFAULT_INGRESS), spec.get("controller", ""), text, _age(document, now)]


def _marked_default(document: Document, annotation: str) -> str:
    is_default = (document["metadata"].get("annotations") or {}).get(annotation) == "true"
    return _name(document) + (" (default)" if is_default else "")


def _ip_address(document: Document, now: datetime) -> list[Any]:
    parent = _at(document, "spec", "parentRef")
    text = NONE
    if parent:
        group = f".{parent['group']}" if parent.get("group") else ""
        parts = (f"{parent.get('resource', '')}{group}".lower(), parent.get("namespace"), parent.get("name") or "")
        text = "/".join(part for part in parts if part is not None and part != "")
    return [_name(document), text]


def _network_policy(document: Document, now: datetime) -> list[Any]:
    return [_name(document), selector_text(_at(document, "spec", "podSelector") or {}), _age(document, now)]


def _service_cidr(document: Document, now: datetime) -> list[Any]:
    return [_name(document), ",".join(_at(document, "spec", "cidrs") or ()), _age(document, now)]


# --- volumes ---------------------------------------------------------------------------------------------------------

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
DEFAULT_STORAGE = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")


def _access_modes(modes: Any) -> str:
    return ",".join(short for mode, short in _MODES.items() if mode in (modes or ()))


def _volume_class(document: Document) -> str:
    named = (document["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    return str(named or _at(document, "spec", "storageClassName") or "")


def _phase(document: Document) -> str:
    return "Terminating" if document["metadata"].get("deletionTimestamp") else _at(document, "status", "phase") or ""


def _volume(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    claim = spec.get("claimRef")
    return [
        _name(document), (spec.get("capacity") or {}).get("storage", "0"), _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), _phase(document),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "", _volume_class(document),
        spec.get("volumeAttributesClassName") or UNSET, _at(document, "status", "reason") or "", _age(document, now),
        spec.get("volumeMode") or UNSET,
    ]  # fmt: skip


def _volume_claim(document: Document, now: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        _name(document), _phase(document), spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "", _volume_class(document),
        spec.get("volumeAttributesClassName") or UNSET, _age(document, now), spec.get("volumeMode") or UNSET,
    ]  # fmt: skip


def _storage_class(document: Document, now: datetime) -> list[Any]:
    name = next(
        (found for key in DEFAULT_STORAGE if (found := _marked_default(document, key)) != _name(document)),
        _name(document),
    )
    return [
        name, document.get("provisioner", ""), document.get("reclaimPolicy") or "Delete",
        document.get("volumeBindingMode") or UNSET, bool(document.get("allowVolumeExpansion")), _age(document, now),
    ]  # fmt: skip


def _csi_driver(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    tokens = spec.get("tokenRequests")
    return [
        _name(document), spec.get("attachRequired", True), bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        UNSET if tokens is None else ",".join(token.get("audience", "") for token in tokens),
        bool(spec.get("requiresRepublish")), ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        _age(document, now),
    ]  # fmt: skip


def _csi_node(document: Document, now: datetime) -> list[Any]:
    return [_name(document), len(_at(document, "spec", "drivers") or ()), _age(document, now)]


def _volume_attachment(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    return [
        _name(document), spec.get("attacher", ""), _at(spec, "source", "persistentVolumeName") or "",
        spec.get("nodeName", ""), bool(_at(document, "status", "attached")), _age(document, now),
    ]  # fmt: skip


def _attributes_class(document: Document, now: datetime) -> list[Any]:
    return [_name(document), document.get("driverName", ""), _age(document, now)]


# --- autoscaling -----------------------------------------------------------------------------------------------------


def _autoscaler(document: Document, now: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    target = spec.get("scaleTargetRef") or {}
    current = status.get("currentMetrics") or []
    metrics = [
        _metric(metric, current[i] if i < len(current) else {}) for i, metric in enumerate(spec.get("metrics") or ())
    ]
    more = f" + {len(metrics) - 2} more..." if len(metrics) > 2 else ""
    smallest = spec.get("minReplicas")
    return [
        _name(document), f"{target.get('kind', '')}/{target.get('name', '')}", ", ".join(metrics[:2]) + more or NONE,
        UNSET if smallest is None else str(smallest), spec.get("maxReplicas", 0), status.get("currentReplicas") or 0,
        _age(document, now),
    ]  # fmt: skip


_METRIC_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metric(metric: Document, current: Document) -> str:
    key = _METRIC_FIELDS.get(metric.get("type", ""))
    if key is None:
        return "<unknown type>"
    source, target, found = metric.get(key) or {}, _at(metric, key, "target") or {}, _at(current, key, "current") or {}
    head = f"{source.get('name', '')}: " if "esource" in key else ""
    if target.get("averageValue") is not None:
        tail = " (avg)" if key in ("external", "object") else ""
        return f"{head}{found.get('averageValue') or UNKNOWN}/{target['averageValue']}{tail}"
    if head:
        percent = found.get("averageUtilization")
        wanted = target.get("averageUtilization")
        return f"{head}{_percent(percent, UNKNOWN)}/{_percent(wanted, '<auto>')}"
    return f"{found.get('value') or UNKNOWN}/{target.get('value', '0')}"


def _percent(value: Any, missing: str) -> str:
    return missing if value is None else f"{value}%"


# --- certificates ----------------------------------------------------------------------------------------------------


def _certificate_request(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    return [
        _name(document), _age(document, now), spec.get("signerName") or NONE, spec.get("username", ""),
        NONE if seconds is None else _duration(seconds), _certificate_state(document),
    ]  # fmt: skip


def _duration(seconds: int) -> str:
    """In the largest unit of which there are at least two."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _certificate_state(document: Document) -> str:
    status = document.get("status") or {}
    types = {entry.get("type") for entry in status.get("conditions") or ()}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    return state + (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")


def _trust_bundle(document: Document, now: datetime) -> list[Any]:
    return [_name(document), _at(document, "spec", "signerName") or NONE]


def _pod_certificate(document: Document, now: datetime) -> list[Any]:
    spec, conditions = document.get("spec") or {}, _at(document, "status", "conditions") or ()
    types = [entry.get("type") for entry in conditions]
    state = next((kind for kind in ("Denied", "Failed", "Issued") if kind in types), "Pending")
    notes = ",".join(f"{key}={value}" for key, value in sorted((spec.get("unverifiedUserAnnotations") or {}).items()))
    fields = ("podName", "serviceAccountName", "nodeName", "signerName")
    return [_name(document), *(spec.get(field, "") for field in fields), state, notes or NONE]


# --- others ----------------------------------------------------------------------------------------------------------


def _replication_controller(document: Document, now: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    counts = [spec.get("replicas") or 0, status.get("replicas") or 0, status.get("readyReplicas") or 0]
    names, images = _containers(spec.get("template") or {})
    selector = selector_text({"matchLabels": spec.get("selector") or {}})
    return [_name(document), *counts, _age(document, now), names, images, selector]


def _containers(template: Document) -> tuple[str, str]:
    found = _at(template, "spec", "containers") or ()
    return ",".join(c.get("name", "") for c in found), ",".join(c.get("image", "") for c in found)


def _pod_template(document: Document, now: datetime) -> list[Any]:
    template = document.get("template") or {}
    labels = _at(template, "metadata", "labels") or {}
    return [_name(document), *_containers(template), selector_text({"matchLabels": labels})]


def _stateful_set(document: Document, now: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [_name(document), ready, _age(document, now), *_containers(spec.get("template") or {})]


def _cron_job(document: Document, now: datetime) -> list[Any]:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    job = _at(spec, "jobTemplate", "spec") or {}
    last = status.get("lastScheduleTime")
    return [
        _name(document), spec.get("schedule", ""), spec.get("timeZone") or NONE, str(bool(spec.get("suspend"))),
        len(status.get("active") or ()), age(last, now) if last else NONE, _age(document, now),
        *_containers(job.get("template") or {}), selector_text(job.get("selector") or {}),
    ]  # fmt: skip


def _controller_revision(document: Document, now: datetime) -> list[Any]:
    owners = document["metadata"].get("ownerReferences") or ()
    owner = next((entry for entry in owners if entry.get("controller")), None)
    text = NONE
    if owner:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        text = f"{owner.get('kind', '').lower()}{'.' + group if group else ''}/{owner.get('name', '')}"
    return [_name(document), text, document.get("revision", 0), _age(document, now)]


def _flow_schema(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    conditions = _at(document, "status", "conditions") or ()
    dangling = next((entry.get("status", "") for entry in conditions if entry.get("type") == "Dangling"), "?")
    return [
        _name(document), _at(spec, "priorityLevelConfiguration", "name") or "", spec.get("matchingPrecedence", 0),
        _at(spec, "distinguisherMethod", "type") or NONE, _age(document, now), dangling,
    ]  # fmt: skip


def _priority_level(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = _at(limited, "limitResponse", "queuing") or {}
    return [
        _name(document), spec.get("type", ""), limited.get("nominalConcurrencyShares", NONE),
        *(queuing.get(field, NONE) for field in ("queues", "handSize", "queueLengthLimit")), _age(document, now),
    ]  # fmt: skip


def _runtime_class(document: Document, now: datetime) -> list[Any]:
    return [_name(document), document.get("handler", ""), _age(document, now)]


def _webhooks(document: Document, now: datetime) -> list[Any]:
    return [_name(document), len(document.get("webhooks") or ()), _age(document, now)]


def _migration(document: Document, now: datetime) -> list[Any]:
    resource = _at(document, "spec", "resource") or {}
    group = resource.get("group") or ""
    true = [entry.get("type") for entry in _at(document, "status", "conditions") or () if entry.get("status") == "True"]
    state = true[-1] if true else "Unknown"
    return [_name(document), f"{resource.get('resource', '')}{'.' + group if group else ''}", state]


def _pod_group(document: Document, now: datetime) -> list[Any]:
    policy = "Gang" if _at(document, "spec", "schedulingPolicy", "gang") is not None else "Basic"
    workload = _at(document, "spec", "workloadRef", "workloadName") or NONE
    conditions = {entry.get("type"): entry for entry in _at(document, "status", "conditions") or ()}
    state = "Pending"
    if scheduled := conditions.get("PodGroupInitiallyScheduled"):
        state = "Scheduled" if scheduled.get("status") == "True" else "Unschedulable"
    if disrupted := conditions.get("DisruptionTarget"):
        state = disrupted.get("reason", "")
    return [_name(document), policy, workload, state, _age(document, now)]


def _api_service(document: Document, now: datetime) -> list[Any]:
    service = _at(document, "spec", "service")
    place = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    conditions = _at(document, "status", "conditions") or ()
    available: Document = next((entry for entry in conditions if entry.get("type") == "Available"), {})
    state = available.get("status", "Unknown")
    if state != "True" and available.get("reason"):
        state = f"{state} ({available['reason']})"
    return [_name(document), place, state, _age(document, now)]


def _definition(document: Document, now: datetime) -> list[Any]:
    spec = document.get("spec") or {}
    kept = ("", "(storage)")
    versions = sorted(
        f"{version.get('name', '')}{kept[bool(version.get('storage'))]}"
        for version in spec.get("versions") or ()
        if version.get("served")
    )
    conditions = _at(document, "status", "conditions") or ()
    is_established = any(entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions)
    return [
        _name(document), spec.get("scope", ""), ",".join(versions), document["metadata"].get("creationTimestamp", ""),
        spec.get("group", ""), _at(spec, "names", "kind") or "", ",".join(_at(spec, "names", "shortNames") or ()),
        is_established,
    ]  # fmt: skip


CLUSTER_CELLS: dict[str, Cells] = {
    "CustomResourceDefinition": _definition,
    "Endpoints": _endpoints,
    "EndpointSlice": _endpoint_slice,
    "Ingress": _ingress,
    "IngressClass": _ingress_class,
    "IPAddress": _ip_address,
    "NetworkPolicy": _network_policy,
    "ServiceCIDR": _service_cidr,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _volume_claim,
    "StorageClass": _storage_class,
    "CSIDriver": _csi_driver,
    "CSINode": _csi_node,
    "VolumeAttachment": _volume_attachment,
    "VolumeAttributesClass": _attributes_class,
    "HorizontalPodAutoscaler": _autoscaler,
    "CertificateSigningRequest": _certificate_request,
    "ClusterTrustBundle": _trust_bundle,
    "PodCertificateRequest": _pod_certificate,
    "LeaseCandidate": _spec_cells("leaseName", "binaryVersion", "emulationVersion"),
    "ReplicationController": _replication_controller,
    "PodTemplate": _pod_template,
    "PodGroup": _pod_group,
    "APIService": _api_service,
    "StatefulSet": _stateful_set,
    "CronJob": _cron_job,
    "ControllerRevision": _controller_revision,
    "FlowSchema": _flow_schema,
    "PriorityLevelConfiguration": _priority_level,
    "RuntimeClass": _runtime_class,
    "MutatingWebhookConfiguration": _webhooks,
    "ValidatingWebhookConfiguration": _webhooks,
    "StorageVersionMigration": _migration,
}
