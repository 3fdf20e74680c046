"""NoSchedule and NoExecute taints block a device unless each is tolerated by the request."""

from collections.abc import Iterable, Iterator, Sequence

from dray.api.resource import DeviceTaint, DeviceToleration


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> Iterator[DeviceTaint]:
    for taint in taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            yield taint


def first_untolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[DeviceToleration]) -> DeviceTaint | None:
    return next(untolerated(taints, tolerations), None)
