"""One class name, one meaning: no two modules define a public class of the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "dray"
# A name that two rooms share on purpose, and why.
SHARED = {
    "ApiError": "the server raises it and the client receives it: the same refusal on both sides of the wire",
    "NodeAffinity": "Kubernetes calls the plugin and the field of the pod the same",
    "ServiceAccount": "Kubernetes calls the admission plugin and the kind the same",
    "Pool": "drivers describe pools and the allocator searches them: the same thing, before and after it is published",
}


def test_public_class_names_are_unique() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        if "proto" in path.parts:  # Generated; every version of a protocol has the same messages.
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(SOURCE)))
    twice = {name: where for name, where in modules.items() if len(where) > 1}
    unexpected = {name: where for name, where in twice.items() if name not in SHARED}
    assert unexpected == {}
