"""Tokens to tree. Operators are climbed by binding strength; only parentheses, arguments and `?:` count as nesting."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dray.cel import macros
from dray.cel.ast import AstNode, FunctionCall, Ident, ListLiteral, Literal, MapLiteral, Select, StructLiteral
from dray.cel.deep_calls import DeepCall, run
from dray.cel.errors import Issue, Refused
from dray.cel.lexer import RESERVED, Token, bytes_value, string_value, tokenize
from dray.cel.values import UInt

MAX_NESTING = 250

# Operator to (binding strength, function). All comparisons bind alike and to the left.
_BINARY = {
    "||": (1, "_||_"),
    "&&": (2, "_&&_"),
    "==": (3, "_==_"),
    "!=": (3, "_!=_"),
    "<": (3, "_<_"),
    "<=": (3, "_<=_"),
    ">": (3, "_>_"),
    ">=": (3, "_>=_"),
    "in": (3, "@in"),
    "+": (4, "_+_"),
    "-": (4, "_-_"),
    "*": (5, "_*_"),
    "/": (5, "_/_"),
    "%": (5, "_%_"),
}
_OPENING = ("(", "[", "{", ".")
_MIN_INT, _MAX_INT, _MAX_UINT = -(2**63), 2**63 - 1, 2**64 - 1


def parse(text: str, quoted_fields: bool = False) -> AstNode:
    """The tree of `text`; raises Refused."""
    parser = _Parser(tokenize(text), quoted_fields)
    node = run(parser.expression(0))
    if parser.token.kind != "end":
        raise parser.unexpected()
    return node


class _Parser:
    def __init__(self, tokens: list[Token], quoted_fields: bool) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        # How many expressions, comparisons, sums and products, and selections are open at this point.
        self.depth = self.comparisons = self.terms = self.members = 0
        self.quoted_fields = quoted_fields

    def advance(self) -> Token:
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def takes(self, operator: str) -> bool:
        if self.token.text == operator and self.token.kind == "op":
            self.advance()
            return True
        return False

    def expect(self, operator: str) -> Token:
        if self.token.text != operator or self.token.kind != "op":
            raise self.unexpected(f"expecting '{operator}'")
        return self.advance()

    def unexpected(self, wanted: str = "") -> Refused:
        shown = "<EOF>" if self.token.kind == "end" else self.token.text
        message = f"Syntax error: mismatched input '{shown}'" + (f" {wanted}" if wanted else "")
        return Refused([Issue(self.token.offset, message)])

    def expression(self, minimum: int) -> DeepCall[AstNode]:
        """An expression whose operators bind at least as strongly as `minimum`; 0 admits `?:`."""
        comparisons, terms = self.comparisons, self.terms
        self.depth += minimum == 0
        self.comparisons += minimum < 5
        self.terms += 1
        self.check_depth()
        start = self.token.offset
        left = yield from self.unary()
        while True:
            token = self.token
            row = _BINARY.get(token.text) if token.kind in ("op", "ident") else None
            if row is None or row[0] < minimum:
                break
            strength, function = row
            if strength <= 2:
                left = yield from self.logical(left, token.text, function, strength)
                continue
            self.advance()
            if strength == 3:
                self.terms = terms
                self.comparisons += 1
            else:
                self.terms += 1
            right = (yield self.expression(strength + 1)) if strength < 5 else (yield from self.factor())
            left = self.spanned(FunctionCall(token.offset, function, [left, right]), start)
        if minimum == 0 and self.token.text == "?" and self.token.kind == "op":
            question = self.advance()
            first = yield self.expression(1)
            self.expect(":")
            second = yield self.expression(0)
            left = self.spanned(FunctionCall(question.offset, "_?_:_", [left, first, second]), start)
        self.depth -= minimum == 0
        self.comparisons, self.terms = comparisons, terms
        return left

    def check_depth(self) -> None:
        """Each rule of the grammar may be open so many times at once; `a + b + c` opens one for every operator."""
        if max(self.depth, self.comparisons, self.terms, self.members) > MAX_NESTING:
            raise Refused([Issue(self.token.offset, f"expression recursion limit exceeded: {MAX_NESTING}")])

    def factor(self) -> DeepCall[AstNode]:
        """The right side of `*`, `/` and `%`."""
        self.terms += 1
        self.check_depth()
        node = yield from self.unary()
        self.terms -= 1
        return node

    def spanned(self, node: AstNode, start: int) -> AstNode:
        """The node, told that it was read from `start` up to here."""
        last = self.tokens[self.at - 1]
        node.start, node.end = start, last.offset + len(last.text)
        return node

    def logical(self, left: AstNode, operator: str, function: str, strength: int) -> DeepCall[AstNode]:
        """A chain of one operator as a balanced tree, so that long chains stay shallow."""
        terms, offsets = [left], []
        while self.token.text == operator and self.token.kind == "op":
            offsets.append(self.advance().offset)
            terms.append((yield self.expression(strength + 1)))
        return _balanced(function, terms, offsets, 0, len(terms) - 1)

    def unary(self) -> DeepCall[AstNode]:
        token = self.token
        if token.kind != "op" or token.text not in ("!", "-"):
            return self.member()
        if token.text == "-" and self.tokens[self.at + 1].kind in ("int", "float"):
            return self.member()
        return self.negation(token)

    def negation(self, token: Token) -> DeepCall[AstNode]:
        count = 0
        while self.token.kind == "op" and self.token.text == token.text:
            self.advance()
            count += 1
        operand = yield from self.member()
        if count % 2 == 0:
            return operand
        return self.spanned(FunctionCall(token.offset, "!_" if token.text == "!" else "-_", [operand]), token.offset)

    def member(self) -> DeepCall[AstNode]:
        """A primary expression with its selections, calls and indexes. Only what may nest is a deep call."""
        members = self.members
        self.members += 1
        self.check_depth()
        token = self.token
        if token.kind == "ident":
            node = self.name()
            if self.is_at_opening() and isinstance(node, Ident):
                node = yield from self.global_call(node, token)
        elif token.kind == "op" and token.text in _OPENING:
            node = yield from self.bracketed()
        else:
            node = self.literal()
        while self.token.kind == "op":
            token = self.token
            if token.text not in (".", "[", "{"):
                break
            self.members += 1
            self.check_depth()
            if token.text == ".":
                node = self.selection(node)
                if self.is_at_opening() and isinstance(node, Select):
                    node = yield from self.member_call(node)
            elif token.text == "[":
                self.advance()
                function = "_[?_]" if self.takes("?") else "_[_]"
                index = yield self.expression(0)
                end = self.expect("]")
                node = _ended(FunctionCall(token.offset, function, [node, index]), end, node)
            elif token.text == "{" and (name := _qualified_name(node)) is not None:
                node = yield from self.struct(node, name)
            else:
                break
        self.members = members
        return node

    def is_at_opening(self) -> bool:
        return self.token.text == "(" and self.token.kind == "op"

    def selection(self, operand: AstNode) -> AstNode:
        """The field; where it turns out to be the name of a method, `member_call` takes its place."""
        dot = self.expect(".")
        optional = self.takes("?")
        name = self.token
        if name.kind == "quoted" and self.quoted_fields:
            self.advance()
            field = name.text[1:-1]
        elif name.kind == "ident" and name.text not in ("true", "false", "null", "in"):
            self.advance()
            field = name.text
        else:
            raise self.unexpected("expecting IDENTIFIER")
        if optional:
            return _ended(FunctionCall(dot.offset, "_?._", [operand, Literal(name.offset, field)]), name, operand)
        return _ended(Select(dot.offset, operand, field), name, operand)

    def member_call(self, method: Select) -> DeepCall[AstNode]:
        opening = self.advance()
        args: list[AstNode] = []
        yield from self.arguments(")", args)
        end = self.tokens[self.at - 1]
        expanded = macros.expand_member(method.offset, opening.offset, method.operand, method.field, args)
        return _ended(expanded or FunctionCall(opening.offset, method.field, args, method.operand), end, method.operand)

    def arguments(self, closing: str, args: list[AstNode]) -> Generator[Any, AstNode, None]:
        """Appends the arguments up to the closing bracket to `args`."""
        if self.takes(closing):
            return
        while True:
            args.append((yield self.expression(0)))
            if self.takes(closing):
                return
            self.expect(",")

    def struct(self, node: AstNode, name: str) -> DeepCall[AstNode]:
        self.expect("{")
        fields: list[tuple[str, AstNode]] = []
        optional: set[int] = set()
        while not self.takes("}"):
            if self.takes("?"):
                optional.add(len(fields))
            token = self.token
            if token.kind not in ("ident", "quoted"):
                raise self.unexpected("expecting IDENTIFIER")
            self.advance()
            self.expect(":")
            fields.append((token.text.strip("`"), (yield self.expression(0))))
            if not self.takes(","):
                self.expect("}")
                break
        literal = StructLiteral(node.offset, name, fields, frozenset(optional))
        return _ended(literal, self.tokens[self.at - 1], node)

    def bracketed(self) -> DeepCall[AstNode]:
        """An expression in parentheses, a list, a map, or a name that begins with a dot."""
        token = self.advance()
        if token.text == "(":
            node = yield self.expression(0)
            self.expect(")")
            return node
        if token.text == "[":
            return (yield from self.list_literal(token))
        if token.text == "{":
            return (yield from self.map_literal(token))
        if self.token.kind != "ident":
            self.token = token
            raise self.unexpected("expecting an expression")
        first = self.token
        node = self.name(".")
        if self.is_at_opening() and isinstance(node, Ident):
            node = yield from self.global_call(node, first)
        return node

    def literal(self) -> AstNode:
        token = self.token
        kind = token.kind
        self.advance() if kind != "end" else None
        if kind == "string":
            return _ended(Literal(token.offset, string_value(token)), token)
        if kind in ("int", "float", "uint") or (token.text == "-" and self.token.kind in ("int", "float")):
            return self.number(token)
        if kind == "bytes":
            return _ended(Literal(token.offset, bytes_value(token)), token)
        self.token = token
        raise self.unexpected("expecting an expression")

    def name(self, prefix: str = "") -> AstNode:
        """The name; where it turns out to be that of a function, `global_call` takes its place."""
        token = self.advance()
        text = token.text
        if text in ("true", "false", "null"):
            if prefix:
                self.token = token
                raise self.unexpected("expecting IDENTIFIER")
            return _ended(Literal(token.offset, {"true": True, "false": False, "null": None}[text]), token)
        if text == "in":
            self.token = token
            raise self.unexpected()
        if text in RESERVED:
            raise Refused([Issue(token.offset, f"reserved identifier: {text}")])
        return _ended(Ident(token.offset, prefix + text), token)

    def global_call(self, function: Ident, first: Token) -> DeepCall[AstNode]:
        opening = self.advance()
        args: list[AstNode] = []
        yield from self.arguments(")", args)
        expanded = macros.expand_global(opening.offset, function.name, args)
        return self.spanned(expanded or FunctionCall(opening.offset, function.name, args), first.offset)

    def number(self, token: Token) -> AstNode:
        negative = token.text == "-"
        digits = self.advance() if negative else token
        sign = -1 if negative else 1
        if digits.kind == "float":
            number = sign * float(digits.text)
            if number in (float("inf"), float("-inf")):
                raise Refused([Issue(token.offset, "invalid double literal")])
            return _ended(Literal(token.offset, number), digits)
        if digits.kind == "uint":
            text = digits.text[:-1]
            unsigned = int(text, 16 if text[:2] in ("0x", "0X") else 10) if len(text) < 40 else _MAX_UINT + 1
            if negative or unsigned > _MAX_UINT:
                raise Refused([Issue(token.offset, "invalid uint literal")])
            return _ended(Literal(token.offset, UInt(unsigned)), digits)
        text = digits.text
        whole = sign * int(text, 16 if text[:2] in ("0x", "0X") else 10) if len(text) < 40 else _MAX_INT + 1
        if not _MIN_INT <= whole <= _MAX_INT:
            raise Refused([Issue(token.offset, "invalid int literal")])
        return _ended(Literal(token.offset, whole), digits)

    def list_literal(self, opening: Token) -> DeepCall[AstNode]:
        elements: list[AstNode] = []
        optional: set[int] = set()
        self.lone_comma("]")
        while not self.takes("]"):
            if self.takes("?"):
                optional.add(len(elements))
            elements.append((yield self.expression(0)))
            if not self.takes(","):
                self.expect("]")
                break
        return _ended(ListLiteral(opening.offset, elements, frozenset(optional)), self.tokens[self.at - 1])

    def lone_comma(self, closing: str) -> None:
        """`[,]` and `{,}` are empty: the grammar lets a comma end also a list without elements."""
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
        if self.token.kind == "op" and self.token.text == "," and following and following.text == closing:
            self.advance()

    def map_literal(self, opening: Token) -> DeepCall[AstNode]:
        entries: list[tuple[AstNode, AstNode]] = []
        optional: set[int] = set()
        self.lone_comma("}")
        while not self.takes("}"):
            if self.takes("?"):
                optional.add(len(entries))
            key = yield self.expression(0)
            self.expect(":")
            entries.append((key, (yield self.expression(0))))
            if not self.takes(","):
                self.expect("}")
                break
        return _ended(MapLiteral(opening.offset, entries, frozenset(optional)), self.tokens[self.at - 1])


def _balanced(function: str, terms: list[AstNode], offsets: list[int], low: int, high: int) -> AstNode:
    if low == high:
        return terms[low]
    middle = (low + high + 1) // 2
    left = _balanced(function, terms, offsets, low, middle - 1)
    right = _balanced(function, terms, offsets, middle, high)
    return _spanned(FunctionCall(offsets[middle - 1], function, [left, right]), left, right)


def _qualified_name(node: AstNode) -> str | None:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = _qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


def _spanned(node: AstNode, first: AstNode, last: AstNode) -> AstNode:
    node.start, node.end = first.start, last.end
    return node


def _ended(node: AstNode, last: Token, first: AstNode | None = None) -> AstNode:
    node.start = first.start if first is not None else node.offset
    node.end = last.offset + len(last.text)
    return node
