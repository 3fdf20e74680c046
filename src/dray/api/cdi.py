"""The Container Device Interface: spec files as data, qualified device names, and what they do to a container.

A driver writes one spec per claim; the program that starts the container reads it. This module reads and writes no files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

DYNAMIC_DIR = "/var/run/cdi"

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


class CdiError(ValueError):
    """A name or a spec that CDI does not allow, or a device that no spec describes."""


class CdiStruct(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """A part of a spec file; an unknown field makes the whole file invalid."""


class DeviceNode(CdiStruct, frozen=True):
    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class NetDevice(CdiStruct, frozen=True):
    host_interface_name: str
    name: str


class Mount(CdiStruct, frozen=True):
    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(CdiStruct, frozen=True):
    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class IntelRdt(CdiStruct, frozen=True):
    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = msgspec.field(default="", name="l3CacheSchema")
    mem_bw_schema: str = msgspec.field(default="", name="memBwSchema")
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


class ContainerEdits(CdiStruct, frozen=True):
    """The edits that a device makes to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == ContainerEdits()


class CdiDevice(CdiStruct, frozen=True):
    name: str
    annotations: dict[str, str] = {}
    container_edits: ContainerEdits = ContainerEdits()


class CdiSpec(CdiStruct, frozen=True):
    cdi_version: str
    kind: str
    annotations: dict[str, str] = {}
    devices: tuple[CdiDevice, ...] = ()
    container_edits: ContainerEdits = ContainerEdits()


def qualified_name(kind: str, device: str) -> str:
    """`vendor/class=device`, or a CdiError that says which part is wrong."""
    _check_kind(kind)
    if not _DEVICE.fullmatch(device):
        raise CdiError(
            f"CDI device name {device!r}: must start and end with a letter or digit, with only [A-Za-z0-9_.:-] inside"
        )
    return f"{kind}={device}"


def split_qualified_name(name: str) -> tuple[str, str]:
    """Kind and device of a qualified name, both checked."""
    kind, separator, device = name.partition("=")
    if not separator:
        raise CdiError(f"CDI device {name!r}: must be vendor/class=device")
    qualified_name(kind, device)
    return kind, device


def _check_kind(kind: str) -> None:
    vendor, separator, class_name = kind.partition("/")
    if not separator or not _VENDOR_OR_CLASS.fullmatch(vendor) or not _VENDOR_OR_CLASS.fullmatch(class_name):
        raise CdiError(
            f"CDI kind {kind!r}: must be vendor/class, each starting with a letter and ending with a letter or digit"
        )


# --- minimum version -------------------------------------------------------------------------------------------------


def minimum_version(kind: str, devices: Sequence[CdiDevice], common: ContainerEdits = ContainerEdits()) -> str:
    """The oldest CDI version that has everything these devices use; drivers write this one."""
    needed = (0, 3, 0)
    if "." in kind.partition("/")[2] or any(device.annotations for device in devices):
        needed = max(needed, (0, 6, 0))
    if any(device.name[:1].isdigit() for device in devices):
        needed = max(needed, (0, 5, 0))
    for edits in (common, *(device.container_edits for device in devices)):
        needed = max(needed, _edits_version(edits))
    return ".".join(map(str, needed))


def _edits_version(edits: ContainerEdits) -> tuple[int, int, int]:
    if edits.net_devices or (edits.intel_rdt and (edits.intel_rdt.schemata or edits.intel_rdt.enable_monitoring)):
        return (1, 1, 0)
    if edits.intel_rdt or edits.additional_gids:
        return (0, 7, 0)
    if any(node.host_path for node in edits.device_nodes):
        return (0, 5, 0)
    if any(mount.type for mount in edits.mounts):
        return (0, 4, 0)
    return (0, 3, 0)


def make_spec(kind: str, devices: Sequence[CdiDevice], common: ContainerEdits = ContainerEdits()) -> CdiSpec:
    """A valid spec at its minimum version."""
    spec = CdiSpec(
        cdi_version=minimum_version(kind, devices, common), kind=kind, devices=tuple(devices), container_edits=common
    )
    check_spec(spec)
    return spec


def check_spec(spec: CdiSpec) -> None:
    """Raise CdiError unless a runtime would take this spec."""
    _check_kind(spec.kind)
    if not spec.devices:
        raise CdiError(f"CDI spec {spec.kind}: must describe at least one device")
    for device in spec.devices:
        qualified_name(spec.kind, device.name)
        if device.container_edits.is_empty:
            raise CdiError(f"CDI device {spec.kind}={device.name}: container edits must not be empty")
    for edits in (spec.container_edits, *(device.container_edits for device in spec.devices)):
        _check_edits(spec.kind, edits)
    declared, needed = (
        _version(spec.cdi_version),
        _version(minimum_version(spec.kind, spec.devices, spec.container_edits)),
    )
    if declared < needed:
        raise CdiError(
            f"CDI spec {spec.kind}: version {spec.cdi_version} is too old for what it uses, needs {'.'.join(map(str, needed))}"
        )


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdigit() for part in parts):
        raise CdiError(f"cdiVersion {text!r}: must be MAJOR.MINOR.PATCH")
    return tuple(map(int, parts))


def _check_edits(kind: str, edits: ContainerEdits) -> None:
    for entry in edits.env:
        if "=" not in entry or entry.startswith("="):
            raise CdiError(f"CDI spec {kind}: env {entry!r}: must be KEY=VALUE")
    for hook in edits.hooks:
        if hook.hook_name not in HOOK_NAMES:
            raise CdiError(f"CDI spec {kind}: hook {hook.hook_name!r}: must be one of {', '.join(HOOK_NAMES)}")
        if not hook.path.startswith("/"):
            raise CdiError(f"CDI spec {kind}: hook path {hook.path!r}: must be absolute")


def decode_spec(text: bytes) -> CdiSpec:
    """A spec from the JSON of a file, checked."""
    try:
        spec = msgspec.json.decode(text, type=CdiSpec)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CdiError(f"CDI spec: {error}") from error
    check_spec(spec)
    return spec


def spec_from_document(document: Any) -> CdiSpec:
    """A spec from parsed YAML or JSON, checked."""
    try:
        spec = msgspec.convert(document, CdiSpec)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise CdiError(f"CDI spec: {error}") from error
    check_spec(spec)
    return spec


# --- use -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CdiRegistry:
    """Devices by qualified name, as the specs of one moment describe them."""

    specs_by_device: Mapping[str, CdiSpec]
    conflicts: frozenset[str] = field(default_factory=frozenset)

    def edits_for(self, names: Iterable[str]) -> ContainerEdits:
        """All edits for these devices, in order; the common edits of a spec once, before its first device."""
        unresolvable: list[str] = []
        collected: list[ContainerEdits] = []
        seen_specs: set[int] = set()
        for name in names:
            spec = self.specs_by_device.get(name)
            if spec is None or name in self.conflicts:
                unresolvable.append(name)
                continue
            if id(spec) not in seen_specs:
                seen_specs.add(id(spec))
                collected.append(spec.container_edits)
            device_name = name.partition("=")[2]
            collected.append(next(device.container_edits for device in spec.devices if device.name == device_name))
        if unresolvable:
            raise CdiError(f"unresolvable CDI devices {', '.join(unresolvable)}")
        return merge_edits(collected)


def make_registry(directories: Sequence[Sequence[CdiSpec]]) -> CdiRegistry:
    """Specs of directories in rising priority; one name twice at the same priority makes the device unusable."""
    specs_by_device: dict[str, CdiSpec] = {}
    conflicts: set[str] = set()
    for specs in directories:
        here: dict[str, CdiSpec] = {}
        for spec in specs:
            for device in spec.devices:
                name = f"{spec.kind}={device.name}"
                if name in here:
                    conflicts.add(name)
                else:
                    conflicts.discard(name)
                here[name] = spec
        specs_by_device |= here
    return CdiRegistry(specs_by_device, frozenset(conflicts))


def merge_edits(edits: Iterable[ContainerEdits]) -> ContainerEdits:
    """One value for many edits: later environment wins, nodes and mounts replace those of the same path."""
    parts = list(edits)
    env: dict[str, str] = {}
    for part in parts:
        env |= dict(entry.partition("=")[::2] for entry in part.env)
    nodes = {node.path: node for part in parts for node in part.device_nodes}
    mounts = {mount.container_path: mount for part in parts for mount in part.mounts}
    gids = dict.fromkeys(gid for part in parts for gid in part.additional_gids if gid)
    return ContainerEdits(
        env=tuple(f"{key}={value}" for key, value in env.items()),
        device_nodes=tuple(nodes.values()),
        net_devices=tuple(device for part in parts for device in part.net_devices),
        mounts=tuple(mounts.values()),
        hooks=tuple(hook for part in parts for hook in part.hooks),
        intel_rdt=next((part.intel_rdt for part in reversed(parts) if part.intel_rdt), None),
        additional_gids=tuple(gids),
    )
