"""The worst that an expression can cost, from its tree and from what is known about sizes."""

from __future__ import annotations

from typing import NamedTuple

from dray.cel.ast import (
    AstNode,
    Bind,
    Comprehension,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
    StructLiteral,
)
from dray.cel.cost_ranges import (
    LIMIT,
    LIST_COST,
    MAP_COST,
    ONE,
    STRING_FACTOR,
    STRUCT_COST,
    UNKNOWN,
    ZERO,
    Range,
    fixed,
)
from dray.cel.deep_calls import DeepCall, ready, run
from dray.cel.environment import Environment
from dray.cel.functions import Estimate, Overload
from dray.cel.types import is_scalar

Path = tuple[str, ...]


class EstimateEntry(NamedTuple):
    """Sizes of a container's keys (or positions) and values."""

    is_list: bool
    key: Range
    value: Range


class Local(NamedTuple):
    path: Path
    size: Range | None
    entry: EstimateEntry | None


def estimate(root: AstNode, environment: Environment) -> int:
    """Cost units, at most; 2**64 - 1 means that nothing bounds it."""
    return run(_Estimator(environment).cost(root)).high


class _Estimator:
    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.locals: dict[str, list[Local]] = {}
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, EstimateEntry] = {}

    # --- cost of nodes

    def cost(self, node: AstNode) -> DeepCall[Range]:
        kind = type(node)
        if kind is Literal:
            return ready(ZERO)
        if kind is FunctionCall:
            return self.call(node)  # type: ignore[arg-type]
        if kind is Select:
            return self.select(node)  # type: ignore[arg-type]
        if kind is Ident:
            return ready(self.ident(node))  # type: ignore[arg-type]
        if kind is Comprehension:
            return self.comprehension(node)  # type: ignore[arg-type]
        if kind is Bind:
            return self.bind(node)  # type: ignore[arg-type]
        if kind is ListLiteral:
            return self.list_literal(node)  # type: ignore[arg-type]
        if kind is MapLiteral:
            return self.map_literal(node)  # type: ignore[arg-type]
        return self.struct(node)  # type: ignore[arg-type]

    def ident(self, node: Ident) -> Range:
        local = self.local(node.name)
        self.paths[id(node)] = local.path if local is not None else (node.name.removeprefix("."),)
        return ONE

    def select(self, node: Select) -> DeepCall[Range]:
        if node.variable is not None:
            self.paths[id(node)] = (node.variable,)
            return ONE
        total = yield self.cost(node.operand)
        if node.test_only:
            return total
        if node.operand.type.kind in ("map", "struct", "param"):
            total = total.plus(ONE)
        self.paths[id(node)] = (*self.path(node.operand), node.field)
        return total

    def list_literal(self, node: ListLiteral) -> DeepCall[Range]:
        total = fixed(LIST_COST)
        item = Range(LIMIT if node.elements else 0, 0)
        for element in node.elements:
            total = total.plus((yield self.cost(element)))
            item = item.union(self.known_size(element))
        self.entries[id(node)] = EstimateEntry(True, ONE, item)
        return total

    def map_literal(self, node: MapLiteral) -> DeepCall[Range]:
        total = fixed(MAP_COST)
        key = value = Range(LIMIT if node.entries else 0, 0)
        for key_node, value_node in node.entries:
            total = total.plus((yield self.cost(key_node))).plus((yield self.cost(value_node)))
            key = key.union(self.known_size(key_node))
            value = value.union(self.known_size(value_node))
        self.entries[id(node)] = EstimateEntry(False, key, value)
        return total

    def struct(self, node: StructLiteral) -> DeepCall[Range]:
        total = fixed(STRUCT_COST)
        for _, value in node.fields:
            total = total.plus((yield self.cost(value)))
        return total

    def bind(self, node: Bind) -> DeepCall[Range]:
        total = fixed(LIST_COST).plus((yield self.cost(node.init)))
        self.push(node.name, Local(self.path(node.init), self.size(node.init), self.entry(node.init)))
        total = total.plus((yield self.cost(node.result)))
        self.locals[node.name].pop()
        size, entry = self.size(node.result), self.entry(node.result)
        if size is not None:
            self.sizes[id(node)] = size
        if entry is not None:
            self.entries[id(node)] = entry
        return total

    def comprehension(self, node: Comprehension) -> DeepCall[Range]:
        total = (yield self.cost(node.range)).plus((yield self.cost(node.init)))
        self.push(node.accu, Local(self.path(node.init), self.size(node.init), self.entry(node.init)))
        self.push_variables(node)
        each = (yield self.cost(node.condition)).plus((yield self.cost(node.step)))
        self.locals[node.variable].pop()
        if node.variable2 is not None:
            self.locals[node.variable2].pop()
        total = total.plus((yield self.cost(node.result)))
        self.locals[node.accu].pop()
        stepped = self.entry(node.step)
        count = self.known_size(node.range)
        total = total.plus(count.times(each))
        if type(node.init) is Literal:
            self.sizes[id(node)] = self.known_size(node.init)
        else:
            self.sizes[id(node)] = count
            if stepped is not None:
                self.entries[id(node)] = stepped
        return total

    def push_variables(self, node: Comprehension) -> None:
        entry, path = self.entry(node.range), self.path(node.range)
        is_list = entry.is_list if entry is not None else node.range.type.kind == "list"
        keys, values = ("@indices", "@items") if is_list else ("@keys", "@values")
        key = entry.key if entry is not None else None
        value = entry.value if entry is not None else None
        if node.variable2 is not None:
            self.push(node.variable, Local((*path, keys), key, None))
            self.push(node.variable2, Local((*path, values), value, None))
        elif is_list:
            self.push(node.variable, Local((*path, values), value, None))
        else:
            self.push(node.variable, Local((*path, keys), key, None))

    def call(self, node: FunctionCall) -> DeepCall[Range]:
        if node.function == "dyn":
            converted = node.args[0]
            total = (yield self.cost(converted)).plus(ONE)
            self.note(node, self.size(converted), self.entry(converted))
            return total
        arguments: list[Range] = []
        for argument in node.args:
            arguments.append(ZERO if type(argument) is Literal else (yield self.cost(argument)))
        total = ZERO if node.target is None else (yield self.cost(node.target))
        spent = ZERO
        for each in arguments:
            spent = spent.plus(each)
        call = _SizedCall(self, node)
        range_ = Range(LIMIT, 0)
        size: Range | None = None
        for overload in node.overloads:
            judged = self.overload(node, overload, call, arguments, spent)
            range_ = range_.union(judged.cost)
            if judged.size is not None:
                size = judged.size if size is None else size.union(judged.size)
            if overload.id in ("index_list", "index_map"):
                entry = self.entry(node.args[0])
                size = None if entry is None else entry.value
                step = "@items" if overload.id == "index_list" else "@values"
                self.paths[id(node)] = (*self.path(node.args[0]), step)
            if size is None:
                size = self.size(node)
        self.note(node, size, None)
        return total.plus(range_)

    def overload(
        self, node: FunctionCall, overload: Overload, call: _SizedCall, arguments: list[Range], spent: Range
    ) -> Estimate:
        if overload.estimate is not None:
            judged = overload.estimate(call)
            if judged is not None:
                self.join_entries(node, overload)
                return Estimate(judged.cost.plus(spent), judged.size)
        if overload.id in ("logical_and", "logical_or"):
            left, right = arguments
            return Estimate(Range(left.low, left.plus(right).high))
        if overload.id == "conditional":
            first, second = node.args[1], node.args[2]
            self.unite_entries(node, first, second)
            cost = arguments[0].plus(arguments[1].union(arguments[2]))
            return Estimate(cost, self.known_size(first).union(self.known_size(second)))
        return Estimate(ONE.plus(spent))

    def join_entries(self, node: FunctionCall, overload: Overload) -> None:
        if overload.id in ("add_list", "add_string", "add_bytes"):
            self.unite_entries(node, node.args[0], node.args[1])

    def unite_entries(self, node: AstNode, first: AstNode, second: AstNode) -> None:
        a, b = self.entry(first), self.entry(second)
        if a is not None and b is not None:
            self.entries[id(node)] = EstimateEntry(a.is_list, a.key.union(b.key), a.value.union(b.value))

    # --- what is known about nodes

    def note(self, node: AstNode, size: Range | None, entry: EstimateEntry | None) -> None:
        if size is not None:
            self.sizes[id(node)] = size
        if entry is not None:
            self.entries[id(node)] = entry

    def push(self, name: str, local: Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def local(self, name: str) -> Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: AstNode) -> Path:
        if type(node) is Ident:
            local = self.local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(id(node), ())

    def known_size(self, node: AstNode) -> Range:
        size = self.size(node)
        return UNKNOWN if size is None else size

    def size(self, node: AstNode) -> Range | None:
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        literal = _literal_size(node)
        if literal is not None:
            return literal
        path = self.path(node)
        if path:
            known = self.environment.size_of(path)
            if known is not None:
                return known
        if is_scalar(node.type):
            return ONE
        if type(node) is Ident:
            local = self.local(node.name)
            if local is not None:
                return local.size
        return None

    def entry(self, node: AstNode) -> EstimateEntry | None:
        known = self.entries.get(id(node))
        if known is None and type(node) is Ident:
            local = self.local(node.name)
            if local is not None:
                return local.entry
        return known


class _SizedCall:
    """A call as the functions' own estimates see it."""

    def __init__(self, estimator: _Estimator, node: FunctionCall) -> None:
        self.estimator = estimator
        self.target = node.target
        self.args = node.args

    def size(self, node: AstNode) -> Range:
        return self.estimator.known_size(node)

    def item_size(self, node: AstNode) -> Range:
        """Of an element of a list; only the variables' declared sizes tell."""
        path = self.estimator.path(node)
        known = self.estimator.environment.size_of((*path, "@items")) if path else None
        return UNKNOWN if known is None else known

    def element_reading(self, node: AstNode) -> Range | None:
        """Extra cost per element for reading it, if it is text; None for what is no container."""
        if not node.type.params:
            return None
        if node.type.params[0].kind not in ("string", "bytes"):
            return ZERO
        return self.item_size(node).scaled(STRING_FACTOR)


def _literal_size(node: AstNode) -> Range | None:
    if type(node) is Literal:
        return fixed(len(node.value)) if type(node.value) in (str, bytes) else ONE
    if type(node) is ListLiteral:
        return fixed(len(node.elements))
    if type(node) is MapLiteral:
        return fixed(len(node.entries))
    return None
