"""Pod Security: what each level refuses, in which words, since which release."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.validation.pod_security.checks import CHECKS
from dray.validation.pod_security.evaluation import MOST_CHECKED, violations, warnings_about_pods
from dray.validation.pod_security.levels import (
    BASELINE,
    LEVELS,
    NEWEST,
    PRIVILEGED,
    RESTRICTED,
    LevelVersion,
    namespace_levels,
)

Document = dict[str, Any]
LABEL = "pod-security.kubernetes.io/"
SECCOMP = {"type": "RuntimeDefault"}
# What `restricted` wants of each container.
CAREFUL: Document = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def a_careful_pod(**spec: Any) -> Document:
    container = {"name": "c", "image": "i", "securityContext": copy.deepcopy(CAREFUL)}
    context = {"runAsNonRoot": True, "seccompProfile": dict(SECCOMP)}
    return {"metadata": {"name": "p"}, "spec": {"securityContext": context, "containers": [container], **spec}}


def with_context(**context: Any) -> Document:
    """A careful pod but for the security context of its container."""
    pod = a_careful_pod()
    pod["spec"]["containers"][0]["securityContext"] |= context
    return pod


def with_pod_context(**context: Any) -> Document:
    pod = a_careful_pod()
    pod["spec"]["securityContext"] |= context
    return pod


def with_container(**fields: Any) -> Document:
    pod = a_careful_pod()
    pod["spec"]["containers"][0] |= fields
    return pod


def with_annotations(**annotations: str) -> Document:
    pod = a_careful_pod()
    pod["metadata"]["annotations"] = {key.replace("__", "/"): value for key, value in annotations.items()}
    return pod


def details(pod: Document, level: str, minor: int | None = None) -> str:
    return violations(pod, LevelVersion(level, minor)).details


BASELINE_CASES: dict[str, tuple[Document, str]] = {
    "AppArmor of a container": (
        with_context(appArmorProfile={"type": "Unconfined"}),
        'forbidden AppArmor profile (container "c" must not set AppArmor profile type to "Unconfined")',
    ),
    "AppArmor of pod and annotation": (
        with_pod_context(appArmorProfile={"type": "Unconfined"})
        | {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}},
        'forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to "Unconfined", '
        '"container.apparmor.security.beta.kubernetes.io/c="unconfined"")',
    ),
    "host namespaces": (
        a_careful_pod(hostNetwork=True, hostPID=True, hostIPC=True),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    ),
    "host ports": (
        with_container(ports=[{"hostPort": 80}, {"hostPort": 8080}, {"containerPort": 1}, {"hostPort": 0}]),
        'hostPort (container "c" uses hostPorts 80, 8080)',
    ),
    "hosts of probes": (
        with_container(
            livenessProbe={"httpGet": {"host": "10.0.0.1"}},
            lifecycle={"preStop": {"tcpSocket": {"host": "a"}}, "postStart": {"httpGet": {"host": ""}}},
        ),
        'probe or lifecycle host (container "c" uses probe or lifecycle hosts "10.0.0.1", "a")',
    ),
    "privileged": (
        with_context(privileged=True),
        'privileged (container "c" must not set securityContext.privileged=true)',
    ),
    "proc": (
        with_context(procMount="Unmasked"),
        'procMount (container "c" must not set securityContext.procMount to "Unmasked")',
    ),
    "SELinux": (
        with_pod_context(seLinuxOptions={"type": "spc_t", "user": "u", "role": "r"}),
        'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set; '
        "role may not be set)",
    ),
    "seccomp": (
        with_context(seccompProfile={"type": "Unconfined"}),
        'seccompProfile (container "c" must not set securityContext.seccompProfile.type to "Unconfined")',
    ),
    "sysctls": (
        with_pod_context(sysctls=[{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}, {"name": "x"}]),
        "forbidden sysctls (kernel.msgmax, x)",
    ),
    "Windows": (
        with_pod_context(windowsOptions={"hostProcess": True}),
        "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
    ),
}


@pytest.mark.parametrize("case", BASELINE_CASES)
def test_baseline_and_restricted_refuse(case: str) -> None:
    pod, expected = BASELINE_CASES[case]
    assert details(pod, BASELINE) == expected
    assert details(pod, RESTRICTED) == expected
    assert details(pod, PRIVILEGED) == ""


def test_capabilities() -> None:
    pod = with_context(capabilities={"add": ["SYS_ADMIN", "CHOWN"], "drop": ["CHOWN"]})
    added = 'container "c" must not include "{}" in securityContext.capabilities.add'
    assert details(pod, BASELINE) == f"non-default capabilities ({added.format('SYS_ADMIN')})"
    both = added.format('CHOWN", "SYS_ADMIN')
    dropped = 'container "c" must set securityContext.capabilities.drop=["ALL"]'
    assert details(pod, RESTRICTED) == f"unrestricted capabilities ({dropped}; {both})"
    assert details(with_context(capabilities={"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}), RESTRICTED) == ""


def test_volumes() -> None:
    pod = a_careful_pod(
        volumes=[
            {"name": "a", "hostPath": {"path": "/"}},
            {"name": "b", "nfs": {}},
            {"name": "c", "emptyDir": {}},
            {"name": "d"},
        ]
    )
    assert details(pod, BASELINE) == 'hostPath volumes (volume "a")'
    assert details(pod, RESTRICTED) == (
        'restricted volume types (volumes "a", "b", "d" use restricted volume types "hostPath", "nfs", "unknown")'
    )


RESTRICTED_CASES: dict[str, tuple[Document, str]] = {
    "privilege escalation": (
        with_context(allowPrivilegeEscalation=None),
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false)',
    ),
    "root by the container": (
        with_context(runAsNonRoot=False),
        'runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)',
    ),
    "root because nobody says": (
        with_pod_context(runAsNonRoot=None),
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)',
    ),
    "user 0": (with_pod_context(runAsUser=0), "runAsUser=0 (pod must not set runAsUser=0)"),
    "no seccomp profile": (
        with_pod_context(seccompProfile=None),
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")',
    ),
}


@pytest.mark.parametrize("case", RESTRICTED_CASES)
def test_only_restricted_refuses(case: str) -> None:
    pod, expected = RESTRICTED_CASES[case]
    assert details(pod, RESTRICTED) == expected
    assert details(pod, BASELINE) == ""


def test_a_plain_pod_and_a_careful_one() -> None:
    plain = {"spec": {"containers": [{"name": "c"}]}}
    assert details(plain, BASELINE) == ""
    assert details(plain, RESTRICTED) == (
        'allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), '
        'unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), '
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), '
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
        '"Localhost")'
    )
    assert [details(a_careful_pod(), level) for level in LEVELS] == ["", "", ""]


def test_containers_of_all_kinds_are_looked_at() -> None:
    bad = {"securityContext": {**CAREFUL, "privileged": True}}
    pod = a_careful_pod(initContainers=[{"name": "first", **bad}], ephemeralContainers=[{"name": "later", **bad}])
    assert details(pod, RESTRICTED) == (
        'privileged (containers "first", "later" must not set securityContext.privileged=true)'
    )


def test_windows_and_pods_with_users_of_their_own() -> None:
    plain = {"os": {"name": "windows"}, "containers": [{"name": "c"}], "securityContext": {"runAsNonRoot": True}}
    assert details({"spec": plain}, RESTRICTED) == ""
    assert "capabilities" in details({"spec": plain}, RESTRICTED, 24)
    pod = with_pod_context(runAsUser=0, runAsNonRoot=None)
    pod["spec"]["hostUsers"] = False
    assert details(pod, RESTRICTED) == ""
    assert details(pod, RESTRICTED, 34).startswith("runAsNonRoot != true")
    unmasked = with_context(procMount="Unmasked")
    unmasked["spec"]["hostUsers"] = False
    assert details(unmasked, BASELINE) == ""
    assert details(unmasked, BASELINE, 34).startswith("procMount")
    assert details(unmasked, RESTRICTED).startswith("procMount")


@pytest.mark.parametrize(
    ("pod", "level", "last_without", "first_with"),
    [
        (with_container(livenessProbe={"httpGet": {"host": "a"}}), BASELINE, 33, 34),
        (with_context(allowPrivilegeEscalation=True), RESTRICTED, 7, 8),
        (with_context(capabilities={}), RESTRICTED, 21, 22),
        (with_pod_context(runAsUser=0), RESTRICTED, 22, 23),
        (with_context(seccompProfile={"type": "Unconfined"}), BASELINE, 18, 19),
        (with_pod_context(seccompProfile=None), RESTRICTED, 18, 19),
        (
            with_annotations(**{"seccomp.security.alpha.kubernetes.io__pod": "unconfined"}),
            BASELINE,
            19,
            18,
        ),
        (with_pod_context(seLinuxOptions={"type": "container_engine_t"}), BASELINE, 31, 30),
        (with_pod_context(sysctls=[{"name": "net.ipv4.ip_local_reserved_ports"}]), BASELINE, 27, 26),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_fin_timeout"}]), BASELINE, 29, 28),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_wmem"}]), BASELINE, 32, 31),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_notsent_lowat"}]), BASELINE, 37, 36),
    ],
)
def test_rules_change_with_the_release(pod: Document, level: str, last_without: int, first_with: int) -> None:
    assert details(pod, level, last_without) == ""
    assert details(pod, level, first_with) != ""


def test_a_release_to_come_has_the_rules_of_the_newest() -> None:
    pod = with_pod_context(sysctls=[{"name": "net.ipv4.tcp_notsent_lowat"}])
    assert details(pod, BASELINE, 99) == details(pod, BASELINE, NEWEST) == ""
    assert violations(pod, LevelVersion(BASELINE), 36)
    assert violations(pod, LevelVersion(BASELINE, 37), 36)


def test_rules_are_listed_in_order_and_replace_rules_that_are_there() -> None:
    for level in (BASELINE, RESTRICTED):
        names = [check.name for check in CHECKS if check.level == level]
        assert names == sorted(names)
    baseline = {check.name for check in CHECKS if check.level == BASELINE}
    assert {check.replaces for check in CHECKS if check.replaces} <= baseline


# --- labels -----------------------------------------------------------------------------------------------------------


def read(**labels: str) -> tuple[list[str], list[str]]:
    policy, problems = namespace_levels({LABEL + mode.replace("_", "-"): value for mode, value in labels.items()})
    return [str(policy.enforce), str(policy.audit), str(policy.warn)], [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ["privileged:latest"] * 3),
        ({"enforce": "baseline"}, ["baseline:latest", "privileged:latest", "baseline:latest"]),
        (
            {"enforce": "restricted", "enforce_version": "v1.25"},
            ["restricted:v1.25", "privileged:latest", "restricted:v1.25"],
        ),
        (
            {"enforce": "restricted", "enforce_version": "v1.25", "warn_version": "v1.9"},
            ["restricted:v1.25", "privileged:latest", "restricted:v1.9"],
        ),
        (
            {"enforce": "baseline", "warn": "privileged", "audit": "restricted", "audit_version": "latest"},
            ["baseline:latest", "restricted:latest", "privileged:latest"],
        ),
    ],
)
def test_policies_of_labels(labels: dict[str, str], expected: list[str]) -> None:
    assert read(**labels) == (expected, [])


def test_labels_that_cannot_be_read() -> None:
    policy, problems = read(enforce="strict", enforce_version="1.2", audit="x", warn="", warn_version="v1.01")
    assert policy == ["restricted:latest", "privileged:latest", "privileged:latest"]
    level, version = "must be one of privileged, baseline, restricted", 'must be "latest" or "v1.x"'
    assert problems == [
        f'metadata.labels[{LABEL}enforce]: Invalid value: "strict": {level}',
        f'metadata.labels[{LABEL}enforce-version]: Invalid value: "1.2": {version}',
        f'metadata.labels[{LABEL}audit]: Invalid value: "x": {level}',
        f'metadata.labels[{LABEL}warn]: Invalid value: "": {level}',
        f'metadata.labels[{LABEL}warn-version]: Invalid value: "v1.01": {version}',
    ]
    assert read(enforce_version="v1.99999999999999999999999999999999999999999999999999999999")[1]


# --- pods that are there already --------------------------------------------------------------------------------------


def named(name: str, pod: Document, owner: str = "") -> Document:
    owners = [{"uid": owner, "controller": True}] if owner else []
    return {**pod, "metadata": {"name": name, "ownerReferences": owners}}


def test_pods_with_the_same_faults_are_told_once() -> None:
    host = a_careful_pod(hostNetwork=True)
    pods = [named("b", host), named("a", host), named("c", with_context(privileged=True)), named("d", a_careful_pod())]
    asked = LevelVersion(RESTRICTED)
    summary = 'existing pods in namespace "ns" violate the new PodSecurity enforce level "restricted:latest"'
    one = ["a (and 1 other pod): host namespaces", "c: privileged"]
    assert warnings_about_pods(pods, 4, "ns", asked, NEWEST) == [summary, *one]
    more = [*pods, named("e", host)]
    assert warnings_about_pods(more, 5, "ns", asked, NEWEST)[1] == "a (and 2 other pods): host namespaces"
    assert warnings_about_pods(pods[3:], 1, "ns", asked, NEWEST) == []


def test_one_pod_of_each_controller_is_looked_at_first() -> None:
    alike = [named(f"r-{number}", a_careful_pod(), "replicas") for number in range(MOST_CHECKED)]
    pods = [*alike, named("alone", a_careful_pod(hostPID=True))]
    total = len(pods)
    assert warnings_about_pods(pods, total, "ns", LevelVersion(BASELINE), NEWEST) == [
        f"new PodSecurity enforce level only checked against the first {MOST_CHECKED} of {total} existing pods",
        'existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"',
        "alone: host namespaces",
    ]
