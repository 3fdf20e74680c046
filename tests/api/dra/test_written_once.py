"""Each fact of the domain is written once, in api/dra: other rooms do not read the telltale fields by themselves."""

import ast
from functools import cache
from pathlib import Path

import dray

ROOT = Path(dray.__file__).parent

# `api` declares and converts the fields, `validation` checks what users write into them, and `proof` counts for itself.
ANYWHERE = ("api/", "validation/", "proof/")

CLAIM_RECORDS = {
    "resource_claim_statuses",
    "extended_resource_claim_status",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
}
# Names of fields in a list of fields, and a comparison of whole fields: neither says which claims a pod has.
MAY_NAME_CLAIM_RECORDS = {"apiserver/write/admission/node_plugins.py", "scheduler/event_handlers.py"}

# The publisher raises the generation; the ledger keeps old generations until the new one is complete; the allocator
# looks for newer generations on other nodes.
MAY_COMPARE_GENERATIONS = {
    "driver/slices.py",
    "accounting/devices.py",
    "allocator/pools.py",
    "explain/doctor/device_findings.py",
}

# The compiled forms of counters in the allocator and in both guards, and the driver's side, which publishes them.
COUNTERS = ("consumes_counters", "shared_counters")
MAY_READ_COUNTERS = {
    "allocator/pools.py",
    "allocator/device_kinds.py",
    "apiserver/guard/device_records.py",
    "sim/memory_cluster_guard.py",
}


def is_checked(name):
    return not name.startswith((*ANYWHERE, "proto/"))


MODULES = [
    name for name in sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")) if is_checked(name)
]


@cache
def tree_of(name):
    return ast.parse((ROOT / name).read_text())


def texts_and_fields(tree):
    """Names of attributes, and texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def collections_of_texts(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            yield {item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def functions(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def offenders(breaks, allowed=frozenset()):
    return [name for name in MODULES if name not in allowed and breaks(tree_of(name))]


def test_which_claims_a_pod_has_is_said_in_pod_claims():
    assert not offenders(lambda tree: CLAIM_RECORDS.intersection(texts_and_fields(tree)), MAY_NAME_CLAIM_RECORDS)


def test_when_a_pod_has_finished_is_said_in_pod_phase():
    assert not offenders(lambda tree: any(texts >= {"Succeeded", "Failed"} for texts in collections_of_texts(tree)))


def test_which_taints_keep_pods_out_is_said_in_taints():
    assert not offenders(lambda tree: any(texts >= {"NoSchedule", "NoExecute"} for texts in collections_of_texts(tree)))


def test_tolerations_are_compared_in_taints():
    telltale = {"tolerates", "is_tolerated", "first_untolerated"}
    assert not offenders(lambda tree: telltale.intersection(node.name for node in functions(tree)))


def test_the_newest_generation_is_found_in_pools():
    assert not offenders(compares_generations, MAY_COMPARE_GENERATIONS)


def compares_generations(tree):
    comparisons = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    operands = (operand for node in comparisons for operand in (node.left, *node.comparators))
    return any(ast.unparse(operand).endswith("pool.generation") for operand in operands)


def test_counters_are_added_up_in_consumption():
    assert not [name for name in offenders(loops_over_counters, MAY_READ_COUNTERS) if not name.startswith("driver/")]


def loops_over_counters(tree):
    loops = (node.iter for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension))
    return any(isinstance(loop, ast.Attribute) and loop.attr in COUNTERS for loop in loops)


def test_the_check_sees_what_it_looks_for():
    """In `proof`, which keeps its own answers, every pattern is found."""
    use, devices = tree_of("proof/rules/claim_use.py"), tree_of("proof/rules/devices.py")
    assert CLAIM_RECORDS.intersection(texts_and_fields(use))
    assert any(
        texts >= {"Succeeded", "Failed"} for texts in collections_of_texts(tree_of("proof/rules/node_ledger.py"))
    )
    assert compares_generations(devices)
    assert loops_over_counters(devices)
