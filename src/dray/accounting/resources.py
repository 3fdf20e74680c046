"""Which resources are counted, and in which unit the ledger keeps them."""

from dray.api.quantity import NANOS, Format, Quantity

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"

# The largest amount that Kubernetes' node accounting can hold.
MAX_AMOUNT = 2**63 - 1

_NANOS_PER_MILLI = 1_000_000


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES_PREFIX)


def is_node_allocatable(name: str) -> bool:
    """Does a node hand it out itself? Everything else is an extended resource."""
    return name in (CPU, MEMORY, EPHEMERAL_STORAGE) or name.startswith(HUGEPAGES_PREFIX)


def ledger_amount(name: str, nanos: int) -> int:
    """Milli-cpu for cpu, bytes or a count for the rest; parts of a unit count as a whole one."""
    return -(-nanos // (_NANOS_PER_MILLI if name == CPU else NANOS))


def as_quantity(name: str, amount: int) -> Quantity:
    """A ledger amount as people read it: "1500m", "8Gi"."""
    if name == CPU:
        return Quantity.of_milli(amount)
    return Quantity.of(amount, format_of(name))


def format_of(name: str) -> Format:
    is_bytes = name in (MEMORY, EPHEMERAL_STORAGE) or is_hugepages(name)
    return "BinarySI" if is_bytes else "DecimalSI"
