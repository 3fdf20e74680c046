"""Kubernetes' protobuf encoding, for reading only.

Some kubectl commands (create, auth can-i, drain, run) write no other form. Kinds they make can be read here; the answer is JSON,
which they accept. For any other kind the answer is 415. The field numbers are those of the public API definitions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from dray.api.errors import DecodeError

Document = dict[str, Any]

MAGIC = b"k8s\x00"
MAX_DEPTH = 40

# A message: field number to (JSON name, type). A type is a scalar, a message, or one of these behind `[]` (repeated)
# or `{}` (map with text keys). A name that ends in `?` keeps its zero: it is a pointer on the other side.
Fields = dict[int, tuple[str, str]]


def _fields(text: str) -> Fields:
    fields: Fields = {}
    for part in text.split():
        number, name, kind = part.split(":")
        fields[int(number)] = (name, kind)
    return fields


MESSAGES: dict[str, Fields] = {
    name: _fields(text)
    for name, text in {
        "ObjectMeta": "1:name:string 2:generateName:string 3:namespace:string 4:selfLink:string 5:uid:string "
        "6:resourceVersion:string 7:generation:int 8:creationTimestamp:time 9:deletionTimestamp:time "
        "10:deletionGracePeriodSeconds?:int 11:labels:{}string 12:annotations:{}string "
        "13:ownerReferences:[]OwnerReference 14:finalizers:[]string 17:managedFields:[]ManagedFieldsEntry",
        "OwnerReference": "1:kind:string 3:name:string 4:uid:string 5:apiVersion:string 6:controller?:bool "
        "7:blockOwnerDeletion?:bool",
        "ManagedFieldsEntry": "1:manager:string 2:operation:string 3:apiVersion:string 4:time:time 6:fieldsType:string "
        "7:fieldsV1:json 8:subresource:string",
        "LocalObjectReference": "1:name:string",
        "ObjectReference": "1:kind:string 2:namespace:string 3:name:string 4:uid:string 5:apiVersion:string "
        "6:resourceVersion:string 7:fieldPath:string",
        "LabelSelector": "1:matchLabels:{}string 2:matchExpressions:[]LabelSelectorRequirement",
        "LabelSelectorRequirement": "1:key:string 2:operator:string 3:values:[]string",
        "FieldSelectorRequirement": "1:key:string 2:operator:string 3:values:[]string",
        "DeleteOptions": "1:gracePeriodSeconds?:int 2:preconditions:Preconditions 3:orphanDependents?:bool "
        "4:propagationPolicy?:string 5:dryRun:[]string",
        "Preconditions": "1:uid?:string 2:resourceVersion?:string",
        "Namespace": "1:metadata:ObjectMeta 2:spec:NamespaceSpec 3:status:NamespaceStatus",
        "NamespaceSpec": "1:finalizers:[]string",
        "NamespaceStatus": "1:phase:string",
        "ConfigMap": "1:metadata:ObjectMeta 2:data:{}string 3:binaryData:{}bytes 4:immutable?:bool",
        "Secret": "1:metadata:ObjectMeta 2:data:{}bytes 3:type:string 4:stringData:{}string 5:immutable?:bool",
        "ServiceAccount": "1:metadata:ObjectMeta 2:secrets:[]ObjectReference 3:imagePullSecrets:[]LocalObjectReference "
        "4:automountServiceAccountToken?:bool",
        "ResourceQuota": "1:metadata:ObjectMeta 2:spec:ResourceQuotaSpec",
        "ResourceQuotaSpec": "1:hard:{}quantity 2:scopes:[]string",
        "PriorityClass": "1:metadata:ObjectMeta 2:value:int 3:globalDefault:bool 4:description:string "
        "5:preemptionPolicy?:string",
        "Role": "1:metadata:ObjectMeta 2:rules:[]PolicyRule",
        "ClusterRole": "1:metadata:ObjectMeta 2:rules:[]PolicyRule 3:aggregationRule:AggregationRule",
        "AggregationRule": "1:clusterRoleSelectors:[]LabelSelector",
        "PolicyRule": "1:verbs:[]string 2:apiGroups:[]string 3:resources:[]string 4:resourceNames:[]string "
        "5:nonResourceURLs:[]string",
        "RoleBinding": "1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef",
        "ClusterRoleBinding": "1:metadata:ObjectMeta 2:subjects:[]Subject 3:roleRef:RoleRef",
        "Subject": "1:kind:string 2:apiGroup:string 3:name:string 4:namespace:string",
        "RoleRef": "1:apiGroup:string 2:kind:string 3:name:string",
        "Lease": "1:metadata:ObjectMeta 2:spec:LeaseSpec",
        "LeaseSpec": "1:holderIdentity?:string 2:leaseDurationSeconds?:int 3:acquireTime:microTime "
        "4:renewTime:microTime 5:leaseTransitions?:int 6:strategy?:string 7:preferredHolder?:string",
        "Eviction": "1:metadata:ObjectMeta 2:deleteOptions:DeleteOptions",
        "PodDisruptionBudget": "1:metadata:ObjectMeta 2:spec:PodDisruptionBudgetSpec",
        "PodDisruptionBudgetSpec": "1:minAvailable:intOrString 2:selector:LabelSelector 3:maxUnavailable:intOrString "
        "4:unhealthyPodEvictionPolicy?:string",
        "TokenRequest": "1:metadata:ObjectMeta 2:spec:TokenRequestSpec",
        "TokenRequestSpec": "1:audiences:[]string 3:boundObjectRef:BoundObjectReference 4:expirationSeconds?:int",
        "BoundObjectReference": "1:kind:string 2:apiVersion:string 3:name:string 4:uid:string",
        "TokenReview": "1:metadata:ObjectMeta 2:spec:TokenReviewSpec",
        "TokenReviewSpec": "1:token:string 2:audiences:[]string",
        "SelfSubjectReview": "1:metadata:ObjectMeta",
        "SelfSubjectAccessReview": "1:metadata:ObjectMeta 2:spec:SelfSubjectAccessReviewSpec",
        "SelfSubjectAccessReviewSpec": "1:resourceAttributes:ResourceAttributes "
        "2:nonResourceAttributes:NonResourceAttributes",
        "SelfSubjectRulesReview": "1:metadata:ObjectMeta 2:spec:SelfSubjectRulesReviewSpec",
        "SelfSubjectRulesReviewSpec": "1:namespace:string",
        "SubjectAccessReview": "1:metadata:ObjectMeta 2:spec:SubjectAccessReviewSpec",
        "LocalSubjectAccessReview": "1:metadata:ObjectMeta 2:spec:SubjectAccessReviewSpec",
        "SubjectAccessReviewSpec": "1:resourceAttributes:ResourceAttributes "
        "2:nonResourceAttributes:NonResourceAttributes 3:user:string 4:groups:[]string 6:uid:string",
        "ResourceAttributes": "1:namespace:string 2:verb:string 3:group:string 4:version:string 5:resource:string "
        "6:subresource:string 7:name:string 8:fieldSelector:FieldSelectorAttributes "
        "9:labelSelector:LabelSelectorAttributes",
        "FieldSelectorAttributes": "1:rawSelector:string 2:requirements:[]FieldSelectorRequirement",
        "LabelSelectorAttributes": "1:rawSelector:string 2:requirements:[]LabelSelectorRequirement",
        "NonResourceAttributes": "1:path:string 2:verb:string",
        "Binding": "1:metadata:ObjectMeta 2:target:ObjectReference",
        "Deployment": "1:metadata:ObjectMeta 2:spec:DeploymentSpec",
        "DeploymentSpec": "1:replicas?:int 2:selector:LabelSelector 3:template:PodTemplateSpec 4:strategy:Strategy "
        "5:minReadySeconds:int 6:revisionHistoryLimit?:int 7:paused:bool 9:progressDeadlineSeconds?:int",
        "Strategy": "1:type:string 2:rollingUpdate:RollingUpdate",
        "RollingUpdate": "1:maxUnavailable:intOrString 2:maxSurge:intOrString",
        "Job": "1:metadata:ObjectMeta 2:spec:JobSpec",
        "JobSpec": "1:parallelism?:int 2:completions?:int 3:activeDeadlineSeconds?:int 4:selector:LabelSelector "
        "5:manualSelector?:bool 6:template:PodTemplateSpec 7:backoffLimit?:int 8:ttlSecondsAfterFinished?:int "
        "9:completionMode?:string 10:suspend?:bool",
        "PodTemplateSpec": "1:metadata:ObjectMeta 2:spec:PodSpec",
        "Pod": "1:metadata:ObjectMeta 2:spec:PodSpec",
        "PodSpec": "2:containers:[]Container 3:restartPolicy:string 4:terminationGracePeriodSeconds?:int "
        "5:activeDeadlineSeconds?:int 6:dnsPolicy:string 7:nodeSelector:{}string 8:serviceAccountName:string "
        "9:serviceAccount:string 10:nodeName:string 11:hostNetwork:bool 12:hostPID:bool 13:hostIPC:bool "
        "14:securityContext:PodSecurityContext 15:imagePullSecrets:[]LocalObjectReference 16:hostname:string "
        "17:subdomain:string 19:schedulerName:string 20:initContainers:[]Container "
        "21:automountServiceAccountToken?:bool 22:tolerations:[]Toleration 24:priorityClassName:string 25:priority?:int "
        "27:shareProcessNamespace?:bool 29:runtimeClassName?:string 30:enableServiceLinks?:bool "
        "31:preemptionPolicy?:string 39:resourceClaims:[]PodResourceClaim 40:resources:ResourceRequirements",
        "PodResourceClaim": "1:name:string 3:resourceClaimName?:string 4:resourceClaimTemplateName?:string",
        "PodSecurityContext": "2:runAsUser?:int 3:runAsNonRoot?:bool 4:supplementalGroups:[]int 5:fsGroup?:int "
        "6:runAsGroup?:int",
        "Toleration": "1:key:string 2:operator:string 3:value:string 4:effect:string 5:tolerationSeconds?:int",
        "Container": "1:name:string 2:image:string 3:command:[]string 4:args:[]string 5:workingDir:string "
        "6:ports:[]ContainerPort 7:env:[]EnvVar 8:resources:ResourceRequirements 13:terminationMessagePath:string "
        "14:imagePullPolicy:string 16:stdin:bool 17:stdinOnce:bool 18:tty:bool 20:terminationMessagePolicy:string",
        "ContainerPort": "1:name:string 2:hostPort:int 3:containerPort:int 4:protocol:string 5:hostIP:string",
        "EnvVar": "1:name:string 2:value:string",
        "ResourceRequirements": "1:limits:{}quantity 2:requests:{}quantity 3:claims:[]ContainerClaim",
        "ContainerClaim": "1:name:string 2:request:string",
    }.items()
}


def is_readable(body: bytes) -> bool:
    """Whether a body is in this encoding and of a kind that is known here."""
    try:
        _, kind, _ = _envelope(body)
    except DecodeError:
        return False
    return kind in MESSAGES


def read(body: bytes) -> Document:
    """The object in a body, as the JSON it stands for."""
    api_version, kind, raw = _envelope(body)
    if kind not in MESSAGES:
        raise DecodeError(f"kind {kind} cannot be read from protobuf")
    return {"apiVersion": api_version, "kind": kind, **_message(raw, kind, 0)}


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    if not body.startswith(MAGIC):
        raise DecodeError("provided data does not appear to be a protobuf message")
    api_version = kind = ""
    raw = b""
    for number, _, value in _wire(body[len(MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            for inner, _, text in _wire(value):
                if inner == 1 and isinstance(text, bytes):
                    api_version = _text(text)
                elif inner == 2 and isinstance(text, bytes):
                    kind = _text(text)
        elif number == 2 and isinstance(value, bytes):
            raw = value
    return api_version, kind, raw


def _wire(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, kind, value
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise DecodeError("unexpected EOF")
            yield number, kind, data[at : at + size]
            at += size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, kind, data[at : at + size]
            at += size
        else:
            raise DecodeError(f"proto: illegal wireType {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("unexpected EOF" if at >= len(data) else "proto: integer overflow")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(data: int | bytes) -> str:
    try:
        return bytes(data).decode() if isinstance(data, bytes) else str(data)
    except UnicodeDecodeError:
        raise DecodeError("proto: invalid UTF-8") from None


def _message(data: bytes, kind: str, depth: int) -> Document:
    if depth > MAX_DEPTH:
        raise DecodeError("the message is nested too deeply")
    fields = MESSAGES[kind]
    out: Document = {}
    for number, _, value in _wire(data):
        field = fields.get(number)
        if field is None:
            continue
        name, type_name = field
        keeps_zero, name = name.endswith("?"), name.rstrip("?")
        if type_name.startswith("[]"):
            out.setdefault(name, []).append(_value(value, type_name[2:], depth))
        elif type_name.startswith("{}"):
            key, entry = _map_entry(value, type_name[2:], depth)
            out.setdefault(name, {})[key] = entry
        else:
            found = _value(value, type_name, depth)
            if keeps_zero or found not in ("", 0, False, None):
                out[name] = found
    return out


def _map_entry(value: int | bytes, type_name: str, depth: int) -> tuple[str, Any]:
    key, entry = "", b""
    for number, _, part in _wire(value if isinstance(value, bytes) else b""):
        if number == 1:
            key = _text(part)
        elif number == 2 and isinstance(part, bytes):
            entry = part
    return key, _value(entry, type_name, depth)


def _value(value: int | bytes, type_name: str, depth: int) -> Any:
    if type_name == "int":
        number = value if isinstance(value, int) else 0
        return number - (1 << 64) if number >= 1 << 63 else number
    if type_name == "bool":
        return bool(value)
    data = value if isinstance(value, bytes) else b""
    if type_name == "string":
        return _text(data)
    if type_name == "bytes":
        return base64.b64encode(data).decode()
    if type_name in MESSAGES:
        return _message(data, type_name, depth + 1)
    return _special(data, type_name)


def _special(data: bytes, type_name: str) -> Any:
    """Small messages that are scalars in JSON."""
    parts = {number: value for number, _, value in _wire(data)}
    if type_name == "quantity":
        return _text(parts.get(1, b"0"))
    if type_name == "intOrString":
        return _value(parts.get(2, 0), "int", 0) if not parts.get(1) else _text(parts.get(3, b""))
    if type_name == "json":
        raw = parts.get(1, b"{}")
        return msgspec.json.decode(raw) if isinstance(raw, bytes) else {}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int) or not (seconds or nanos) or seconds > 253402300799:
        return None
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=min(nanos // 1000, 999999))
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ" if type_name == "time" else "%Y-%m-%dT%H:%M:%S.%fZ")
