"""Resources at the level of the pod: a budget that its containers have to fit into."""

from __future__ import annotations

from collections.abc import Callable

from dray.api.quantity import Quantity
from dray.validation.errors import Document, Errors

Amounts = dict[str, Quantity]


def check_budget(spec: Document, path: str, errors: Errors) -> None:
    resources = spec.get("resources") or {}
    requests, limits = _amounts(resources, "requests"), _amounts(resources, "limits")
    for name, asked in sorted(_aggregated(spec, "requests").items()):
        if name in requests and asked > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {asked}"
            errors.invalid(f"{path}.resources.requests[{name}]", str(requests[name]), detail)
    for name, asked in sorted(_aggregated(spec, "limits").items()):
        if name.startswith("hugepages-") and name in limits and asked > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {asked}"
            errors.invalid(f"{path}.resources.limits[{name}]", str(limits[name]), detail)
    for field in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            for name, own in sorted(_amounts(container.get("resources") or {}, "limits").items()):
                if name in limits and own > limits[name]:
                    here = f"{path}.{field}[{i}].resources.limits[{name}]"
                    errors.invalid(here, str(own), f"must be less than or equal to pod limits of {limits[name]}")


def _amounts(resources: Document, field: str) -> Amounts:
    return {name: Quantity.parse(amount) for name, amount in (resources.get(field) or {}).items()}


def _aggregated(spec: Document, field: str) -> Amounts:
    """What all containers come to: those that run together added up, or the largest step before them."""
    together: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _amounts(container.get("resources") or {}, field)
        if container.get("restartPolicy") == "Always":
            together = _merged(together, own, Quantity.__add__)
            most = _merged(most, together, max)
        else:
            most = _merged(most, _merged(together, own, Quantity.__add__), max)
    for container in spec.get("containers") or ():
        together = _merged(together, _amounts(container.get("resources") or {}, field), Quantity.__add__)
    return _merged(most, together, max)


def _merged(one: Amounts, other: Amounts, combine: Callable[[Quantity, Quantity], Quantity]) -> Amounts:
    both = {name: combine(one[name], other[name]) for name in one if name in other}
    return one | other | both
