"""What a Jinja template reaches: parsed with Jinja's own parser, never compiled, never rendered.

Templates are given data, and may take it apart. What leads from data to Python itself are attributes: of
functions, of classes, of frames. Names of these are looked for however they are spelt, and where a name
cannot be known before the template runs, that is told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension, do, loopcontrols
from jinja2.parser import Parser

from modelglass.formats.files_beside import is_safe_relative
from modelglass.formats.jinja import values
from modelglass.formats.jinja.names import free_names
from modelglass.formats.jinja.values import BUILT, DATA, FUNCTION, HUGE, OBJECT, TOKEN, TooComplexError, Value
from modelglass.report import Level

MOST_NODES = 50_000
MOST_PASSES = 6  # over the assignments, until values of names settle
LONGEST_RANGE = 100_000  # Jinja's own sandbox allows no longer ones


@dataclass(frozen=True, slots=True)
class Reach:
    """One thing that a template does beyond its data."""

    code: str
    level: Level
    what: str
    line: int


class _Generation(Extension):
    """`{% generation %}` marks what a model wrote; Hugging Face's own renderer knows it."""

    tags = {"generation"}  # noqa: RUF012 - the interface of Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def reaches(text: str) -> list[Reach]:
    """Everything that a template does beyond its data. What cannot be parsed raises TemplateSyntaxError."""
    environment = Environment(extensions=[loopcontrols, do, _Generation])
    try:
        tree = Parser(environment, text).parse()  # the environment's own method compiles code for its errors
    except ValueError as cause:  # numbers of thousands of digits
        raise TemplateSyntaxError(str(cause), 1) from cause
    return _Walk(tree).found()


def _below(node: nodes.Node) -> Iterator[nodes.Node]:
    for name in node.fields:
        each = getattr(node, name, None)
        for item in each if isinstance(each, list) else (each,):
            if isinstance(item, nodes.Node):
                yield item


def _everything(tree: nodes.Node) -> list[nodes.Node]:
    """Every node, each before what is in it. A template can be deeper than calls may be."""
    found, pending = [], [tree]
    while pending:
        node = pending.pop()
        found.append(node)
        if len(found) > MOST_NODES:
            raise TooComplexError(f"more than {MOST_NODES:,} parts")
        pending.extend(_below(node))
    return found


class _Walk:
    """Values of all expressions of a template, and what is told of them.

    Names mean the same everywhere: whatever is assigned to one, anywhere, it may be.
    """

    def __init__(self, tree: nodes.Node) -> None:
        self._nodes = _everything(tree)
        self._free = free_names(tree)
        self._fold = values.Folding()
        self._values: dict[int, Value] = {}
        self._names: dict[str, Value] = {}
        self._macros: dict[str, nodes.Macro] = {}
        self._told: dict[tuple[str, str], Reach] = {}

    def found(self) -> list[Reach]:
        for number in range(MOST_PASSES):
            before = dict(self._names)
            self._evaluate()
            for node in self._nodes:
                self._assign(node)
            if self._names == before:
                break
            if number >= MOST_PASSES - 2:  # what still grows is built in a loop
                for name, value in self._names.items():
                    if value != before.get(name):
                        grown = BUILT if values.texts(value) else DATA
                        self._names[name] = values.union((value, values.of(grown)))
        self._evaluate()
        for node in self._nodes:
            self._look_at(node)
        self._look_at_loops()
        return sorted(self._told.values(), key=lambda reach: (reach.level != "high", reach.line))

    # Values

    def _evaluate(self) -> None:
        for node in reversed(self._nodes):  # what is in an expression before the expression
            if isinstance(node, nodes.Expr):
                self._values[id(node)] = self._value_of(node)

    def _of(self, node: nodes.Node | None) -> Value:
        return values.NOTHING if node is None else self._values.get(id(node), values.NOTHING)

    def _all(self, several: list[nodes.Node]) -> list[Value]:
        return [self._of(each) for each in several]

    def _value_of(self, node: nodes.Expr) -> Value:
        if isinstance(node, nodes.Const):
            return values.constant(node.value)
        if isinstance(node, nodes.TemplateData):
            return values.constant(node.data[: values.LONGEST])
        if isinstance(node, nodes.Name):
            return self._named(node.name)
        if isinstance(node, nodes.NSRef):
            return values.of(DATA)
        if isinstance(node, nodes.Getattr):
            return self._attribute_of(node)
        if isinstance(node, nodes.Getitem):
            return self._item_of(node)
        if isinstance(node, nodes.Call):
            return self._call_of(node)
        if isinstance(node, nodes.Filter):
            return self._filter_of(node)
        if isinstance(node, (nodes.List, nodes.Tuple, nodes.Dict)):
            return self._list_of(node)
        return self._operation(node)

    def _operation(self, node: nodes.Expr) -> Value:
        if isinstance(node, nodes.Concat):
            parts = self._all(list(node.nodes))
            result = values.constant("")
            for part in parts:
                result = self._fold.all(values.concatenated, result, part)
            marks = () if result.is_constant else (BUILT,)
            return values.union((result, values.of(*marks)))
        if isinstance(node, nodes.BinExpr) and type(node).__name__ in values.OPERATORS:
            left, right = self._of(node.left), self._of(node.right)
            result = self._fold.all(values.OPERATORS[type(node).__name__], left, right)
            return Value(result.constants, result.marks, max(result.size, self._size(node, left, right)))
        if isinstance(node, (nodes.And, nodes.Or)):
            return values.union((self._of(node.left), self._of(node.right)))
        if isinstance(node, nodes.CondExpr):
            return values.union((self._of(node.expr1), self._of(node.expr2)))
        if isinstance(node, (nodes.Neg, nodes.Pos)):
            sign = -1 if isinstance(node, nodes.Neg) else 1
            return self._fold.all(lambda number: sign * number, self._of(node.node))
        if isinstance(node, (nodes.Compare, nodes.Test, nodes.Not)):
            return values.of(DATA)  # yes or no
        inside = values.union(self._of(each) for each in _below(node))
        return inside if inside != values.NOTHING else values.of(DATA)

    def _size(self, node: nodes.BinExpr, left: Value, right: Value) -> int:
        """How long or large a product or power gets, in characters, items or bits."""
        if isinstance(node, nodes.Mul):
            return max(left.size * values.largest(right), right.size * values.largest(left))
        bits = values.largest(left).bit_length() * values.largest(right) if isinstance(node, nodes.Pow) else 0
        return HUGE + 1 if bits > values.MOST_BITS else 0

    def _named(self, name: str) -> Value:
        """What the template assigns to a name, and what others do where the template may not have."""
        assigned = self._names.get(name, values.NOTHING)
        return values.union((assigned, _from_outside(name))) if name in self._free else assigned

    def _attribute_of(self, node: nodes.Getattr) -> Value:
        return self._member_of(node.node, node.attr)

    def _member_of(self, node: nodes.Node, name: str) -> Value:
        """What is under a name that the template spells out."""
        base = self._of(node)
        kept = self._names.get(f"{_spelt(node)}.{name}")  # of a namespace
        if kept is not None:
            return kept
        if base.marks & {OBJECT, FUNCTION}:
            return self._part_of_loop(name) if _spelt(node) == "loop" else values.of(BUILT)
        lists = Value(frozenset(each for each in base.constants if isinstance(each.value, tuple)))
        marks = {DATA if mark == TOKEN else mark for mark in base.marks}  # a text has methods alone
        taken = _taken_from(Value(marks=frozenset(marks)))
        return values.union((taken, values.elements(lists)))  # what a dict has under that name

    def _part_of_loop(self, name: str) -> Value:
        """Numbers, or another turn's item: of any loop, since names mean the same everywhere."""
        if name not in ("previtem", "nextitem"):
            return values.of(DATA)
        loops = [node for node in self._nodes if isinstance(node, nodes.For)]
        return values.union((values.of(DATA), *(values.elements(self._of(each.iter)) for each in loops)))

    def _item_of(self, node: nodes.Getitem) -> Value:
        base = self._of(node.node)
        if isinstance(node.arg, nodes.Slice):
            return self._slice_of(base, node.arg)
        index = self._of(node.arg)
        if (
            base.is_constant
            and index.is_constant
            and all(isinstance(each, int) for each in values.plain(index))
        ):
            return self._fold.all(lambda sequence, at: sequence[at], base, index)
        if base.marks & {OBJECT, FUNCTION}:
            members = [self._member_of(node.node, name) for name in values.texts(index) or ("",)]
            return values.union((*members, Value(marks=base.marks & {FUNCTION})))  # of a list of functions
        return values.union((values.elements(base), _taken_from(base)))

    def _slice_of(self, base: Value, node: nodes.Slice) -> Value:
        ends = (node.start, node.stop, node.step)
        bounds = [values.constant(None) if each is None else self._of(each) for each in ends]
        return self._fold.all(lambda sequence, *at: sequence[slice(*at)], base, *bounds)

    def _list_of(self, node: nodes.Expr) -> Value:
        """A list as a tuple; a dict as that of its keys or that of its values."""
        if isinstance(node, nodes.Dict):
            keys, inside = ([getattr(pair, part) for pair in node.items] for part in ("key", "value"))
            return values.union((self._fold.tuple(self._all(keys)), self._fold.tuple(self._all(inside))))
        return self._fold.tuple(self._all(list(node.items)))  # type: ignore[attr-defined]

    def _call_of(self, node: nodes.Call) -> Value:
        called, given = node.node, self._given(node)
        if isinstance(called, nodes.Getattr):
            return self._method_of(node, called, given)
        if isinstance(called, nodes.Name) and called.name in self._macros:
            return self._body_of(self._macros[called.name].body)
        if isinstance(called, nodes.Name) and called.name in self._free:
            if called.name == "dict":
                keys = values.constant(tuple(pair.key for pair in node.kwargs))
                inside = self._fold.tuple(self._all([pair.value for pair in node.kwargs]))
                return values.union((keys, inside, *given, *map(values.elements, given)))
            if called.name in _MAKERS:
                return values.of(OBJECT)
            if called.name in _COUNTING:
                return values.of(DATA)
            if called.name in ("lipsum", "caller"):
                return values.of(BUILT)
        is_ours = bool(self._of(called).marks & {OBJECT, BUILT})
        return values.of(BUILT if is_ours or any(map(values.may_be_written, given)) else DATA)

    def _given(self, node: nodes.Call | nodes.Filter) -> list[Value]:
        """Everything that a call or filter is given; what stands behind stars is not told apart."""
        starred = [values.of(BUILT) for each in (node.dyn_args, node.dyn_kwargs) if each is not None]
        return [*self._all(list(node.args)), *self._all([pair.value for pair in node.kwargs]), *starred]

    def _method_of(self, node: nodes.Call, called: nodes.Getattr, given: list[Value]) -> Value:
        base, name = self._of(called.node), called.attr
        plain = not node.kwargs and node.dyn_args is None
        if name in values.CUTTING_METHODS and plain:
            return self._fold.cut(values.CUTTING_METHODS[name], base, *given)
        if name in values.METHODS and plain:
            found = self._fold.all(values.METHODS[name], base, *given)
            return Value(found.constants, found.marks, max(found.size, _grown(name, base, given)))
        if base.marks & {OBJECT, FUNCTION}:
            return values.of(BUILT)
        if name in _ANSWERING:
            return values.of(DATA)
        if name in _TAKING:  # the first argument is the name of what is taken
            return values.union((base, values.elements(base), _taken_from(base), *given[1:]))
        return self._made_of(base, given)

    def _made_of(self, base: Value, given: list[Value]) -> Value:
        """What is made of something and of what is given: data, where nothing else goes into it."""
        written = any(map(values.may_be_written, (base, *given)))
        return values.union((_taken_from(base), values.of(BUILT if written else DATA)))

    def _body_of(self, body: list[nodes.Node]) -> Value:
        """The text that a block puts out."""
        result = values.constant("")
        for each in body:
            if not isinstance(each, nodes.Output):
                return values.of(BUILT)
            for part in self._all(list(each.nodes)):
                result = self._fold.all(values.concatenated, result, part)
        return result if result.is_constant else values.union((result, values.of(BUILT)))

    def _filter_of(self, node: nodes.Filter) -> Value:
        base, given = self._of(node.node), self._given(node)
        if node.name in ("default", "d"):
            return values.union((base, *given))
        if node.name == "attr" or (base.marks & {FUNCTION, OBJECT} and node.name in _AS_TEXT):
            # "<function generate_lorem_ipsum at 0x…>" has many characters to pick from
            return values.of(BUILT)
        plain = not node.kwargs and node.dyn_args is None
        if node.name in values.CUTTING_FILTERS and plain:
            return self._fold.cut(values.CUTTING_FILTERS[node.name], base, *given)
        if node.name in values.FILTERS and plain:
            found = self._fold.all(values.FILTERS[node.name], base, *given)
            return Value(found.constants, found.marks, max(found.size, _grown(node.name, base, given)))
        if node.name in _PICKING or (node.name == "map" and not node.args):
            named = [self._of(pair.value) for pair in node.kwargs if pair.key not in ("attribute", "by")]
            more = named if node.name in _BY_NAME else given
            written = [values.of(BUILT)] if any(map(values.may_be_written, more)) else []
            return values.union((base, values.elements(base), *written))
        return self._made_of(base, given)

    # Assignments

    def _assign(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Assign):
            self._bind(node.target, self._of(node.node), node.node)
        elif isinstance(node, nodes.AssignBlock):
            body = self._body_of(node.body)
            self._bind(node.target, body if node.filter is None else values.of(BUILT))
        elif isinstance(node, nodes.For):
            self._bind(node.target, values.elements(self._of(node.iter)), over=True)
        elif isinstance(node, nodes.With):
            for target, value in zip(node.targets, node.values, strict=False):
                self._bind(target, self._of(value), value)
        elif isinstance(node, nodes.Macro):
            self._macros[node.name] = node
            self._add(node.name, values.of(OBJECT))
            self._bind_parameters(node)
        elif isinstance(node, nodes.CallBlock):
            self._bind_parameters(node)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
            self._pass(node.node.name, node)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            name = _spelt(node.node.node)
            if name and node.node.attr in _PUTTING_IN:
                self._add(name, self._fold.tuple(self._all(list(node.args))))

    def _bind_parameters(self, node: nodes.Macro | nodes.CallBlock) -> None:
        for name in node.args:
            self._add(name.name, values.of(DATA))
        for name, default in zip(reversed(node.args), reversed(node.defaults), strict=False):
            self._add(name.name, self._of(default))

    def _pass(self, macro: str, node: nodes.Call) -> None:
        names = [each.name for each in self._macros[macro].args] if macro in self._macros else []
        for name, argument in zip(names, node.args, strict=False):
            self._add(name, self._of(argument))
        for pair in node.kwargs:
            if pair.key in names:
                self._add(pair.key, self._of(pair.value))

    def _bind(
        self, target: nodes.Node, value: Value, node: nodes.Node | None = None, *, over: bool = False
    ) -> None:
        if isinstance(target, nodes.Name):
            self._add(target.name, value)
            if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
                for pair in node.kwargs:  # namespace(x=…)
                    self._add(f"{target.name}.{pair.key}", self._of(pair.value))
        elif isinstance(target, nodes.NSRef):
            self._add(f"{target.name}.{target.attr}", value)
        elif isinstance(target, nodes.Tuple):
            inside = values.elements(value)
            for each in target.items:
                self._bind(each, values.union((inside, value)) if over else inside)

    def _add(self, name: str, value: Value) -> None:
        self._names[name] = values.union((self._names.get(name, values.NOTHING), value))

    # What is told

    def _tell(self, node: nodes.Node, code: str, level: Level, what: str) -> None:
        self._told.setdefault((code, what), Reach(code, level, what[:200], node.lineno))

    def _look_at(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Getattr):
            self._look_at_attribute(node)
        elif isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice):
            self._look_at_key(node, self._of(node.node), self._of(node.arg))
        elif isinstance(node, nodes.Filter):
            self._look_at_filter(node)
        elif isinstance(node, nodes.Call):
            self._look_at_call(node)
        elif isinstance(node, nodes.Name):
            if node.name.startswith("__") or node.name in _ESCAPES:
                self._escapes(node, node.name)
            elif node.name in _PYTHON and node.name not in self._names and node.ctx == "load":
                self._tell(node, "template.python", "notice", f"names {node.name!r} of Python")
        elif isinstance(node, nodes.Const):
            if isinstance(node.value, str) and node.value in _ESCAPES and node.value.startswith("__"):
                self._tell(node, "template.name", "notice", f"holds the name {node.value!r}")
        elif isinstance(node, nodes.Keyword):
            if node.key.startswith("__"):
                self._tell(node, "template.name", "notice", f"holds the name {node.key[:80]!r}")
        elif isinstance(node, (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
            self._look_at_template(node)
        if isinstance(node, nodes.Expr) and self._of(node).size > HUGE:
            text = "makes a text, list or number of more than a million characters, items or bits"
            self._tell(node, "template.exhausts", "notice", text)

    def _escapes(self, node: nodes.Node, name: str) -> None:
        self._tell(node, "template.escape", "high", f"reaches {name[:80]!r}")

    def _look_at_attribute(self, node: nodes.Getattr) -> None:
        base, name = self._of(node.node), _normal(node.attr)
        if _is_escape(name):
            self._escapes(node, node.attr)
        elif name.startswith("_"):
            self._private(node, base, name)
        elif FUNCTION in base.marks:
            self._from_function(node, name)
        elif name in _FORMATTING:
            self._look_at_format(node, base)

    def _from_function(self, node: nodes.Node, name: str) -> None:
        self._tell(node, "template.object", "notice", f"takes {name[:80]!r} from a function of the engine")

    def _private(self, node: nodes.Node, base: Value, name: str) -> None:
        if base.marks <= {DATA} and not base.constants:
            self._tell(node, "template.private", "notice", f"takes {name[:80]!r}, a private name, from data")
        else:
            self._escapes(node, name)

    def _look_at_key(self, node: nodes.Node, base: Value, key: Value, *, attribute: bool = False) -> None:
        """A subscript reaches attributes, too, when there is no such item."""
        for name in map(_normal, values.texts(key)):
            if _is_escape(name):
                self._escapes(node, name)
            elif name.startswith("_") and (attribute or base.marks - {DATA}):
                self._private(node, base, name)
        all_text = base.is_constant and len(values.texts(base)) == len(base.constants)
        odd_base = FUNCTION in base.marks or OBJECT in base.marks or all_text
        if key.marks & _OWN or ((odd_base or attribute) and not key.is_constant):
            self._computed(node)
        if FUNCTION in base.marks:
            for name in values.texts(key):
                self._from_function(node, name)
        if any(name in _FORMATTING for name in values.texts(key)):
            self._look_at_format(node, base)

    def _computed(self, node: nodes.Node) -> None:
        text = "takes an attribute or item whose name it puts together while it runs"
        self._tell(node, "template.computed", "notice", text)

    def _look_at_format(self, node: nodes.Node, base: Value) -> None:
        for text in values.texts(base):
            if any(_is_escape(part) for part in _format_names(text)):
                self._escapes(node, text)
        if base.marks & _OWN:
            self._tell(node, "template.computed", "notice", "formats with a text that it puts together")
        self._look_at_widths(node, base, "{")

    def _look_at_widths(self, node: nodes.Node, base: Value, mark: str) -> None:
        """Fields of a text that is formatted may be as wide as it says."""
        written = (text for text in values.texts(base) if mark in text)
        if any(int(number[:20]) > HUGE for text in written for number in _NUMBER.findall(text)):
            self._tell(node, "template.exhausts", "notice", "formats with a huge width")

    def _look_at_filter(self, node: nodes.Filter) -> None:
        base, arguments = self._of(node.node), self._all(list(node.args))
        named = {pair.key: self._of(pair.value) for pair in node.kwargs}
        if node.name == "attr":
            for key in (*arguments[:1], *named.values()) or (values.of(BUILT),):
                self._look_at_key(node, base, key, attribute=True)
        elif node.name in _BY_ATTRIBUTE:
            at = _BY_ATTRIBUTE[node.name]
            # map('attr', name) is as good as map(attribute=name).
            paths = arguments if node.name == "map" else arguments[at : at + 1]
            for path in (*paths, *(value for key, value in named.items() if key in ("attribute", "name"))):
                self._look_at_path(node, path, base)
        if node.name == "format":
            self._look_at_widths(node, base, "%")
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._tell(node, "template.computed", "notice", "gives a filter arguments that it puts together")
        self._look_at_numbers(node, node.name, [*arguments, *named.values()])

    def _look_at_path(self, node: nodes.Node, path: Value, base: Value) -> None:
        for text in values.texts(path):
            if text in _FORMATTING:
                self._look_at_format(node, values.elements(base))
            if any(_is_escape(name) or name.startswith("_") for name in _normal(text).split(".")):
                self._escapes(node, text)
        if path.marks & _OWN:
            self._computed(node)

    def _look_at_call(self, node: nodes.Call) -> None:
        arguments = self._all(list(node.args)) + self._all([pair.value for pair in node.kwargs])
        name = node.node.name if isinstance(node.node, nodes.Name) else getattr(node.node, "attr", "")
        self._look_at_numbers(node, name, arguments)

    def _look_at_numbers(self, node: nodes.Node, name: str, arguments: list[Value]) -> None:
        if name == "format" and not self._has_width_to_fill_in(node):
            return
        most = LONGEST_RANGE if name in ("range", "lipsum") else HUGE
        if name in _LENGTHS and any(abs(values.largest(each)) > most for each in arguments):
            self._tell(node, "template.exhausts", "notice", f"calls {name!r} with a huge number")

    def _has_width_to_fill_in(self, node: nodes.Node) -> bool:
        """Whether a text to be formatted takes widths from its arguments: %*d, {:{}}."""
        text = node.node.node if isinstance(node, nodes.Call) else node.node  # type: ignore[attr-defined]
        return any("*" in each or ":{" in each for each in values.texts(self._of(text)))

    def _look_at_template(self, node: nodes.Node) -> None:
        name = self._of(node.template)  # type: ignore[attr-defined]
        shown = next(iter(values.texts(name)), "one whose name it computes")
        outside = any(is_safe_relative(each) is not None for each in values.texts(name))
        level: Level = "high" if outside else "notice"
        self._tell(node, "template.other", level, f"loads another template, {shown[:80]!r}")

    def _look_at_loops(self) -> None:
        """Loops in loops over ranges that the template itself gives, and texts that double in one."""
        turns: dict[int, int] = {}
        for node in self._nodes:
            here = turns.get(id(node), 1)
            if isinstance(node, nodes.For):
                here *= self._length_of(node.iter)
                if here > HUGE:
                    text = "goes round in loops more than a million times"
                    self._tell(node, "template.exhausts", "notice", text)
                self._look_at_endless(node)
            elif here > 1 and isinstance(node, nodes.Assign):
                self._look_at_growth(node, here)
            for each in _below(node):
                turns[id(each)] = here

    def _length_of(self, node: nodes.Node) -> int:
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "range":
            return max(2, *(values.largest(each) for each in self._all(list(node.args))), 2)
        return max(
            (len(each) for each in values.plain(self._of(node)) if isinstance(each, (str, tuple))), default=2
        )

    def _look_at_endless(self, node: nodes.For) -> None:
        """A list that grows while a loop goes through it."""
        name = _spelt(node.iter)
        inside = (each for part in node.body for each in _everything(part)) if name else ()
        for each in inside:
            called = each.node if isinstance(each, nodes.Call) else None
            if (
                isinstance(called, nodes.Getattr)
                and called.attr in _PUTTING_IN
                and _spelt(called.node) == name
            ):
                text = "adds to a list while it goes through it"
                self._tell(node, "template.exhausts", "notice", text)

    def _look_at_growth(self, node: nodes.Assign, turns: int) -> None:
        target = _spelt(node.target)
        grown = (nodes.Concat, nodes.Add, nodes.Mul)
        if not target or not isinstance(node.node, grown):
            return
        parts = _everything(node.node)
        uses = sum(_spelt(each) == target for each in parts)
        if uses > 1:
            self._tell(node, "template.exhausts", "notice", "doubles a value again and again in a loop")
        added = max((self._of(each).size for each in _below(node.node) if _spelt(each) != target), default=0)
        if uses and added * turns > HUGE:
            self._tell(node, "template.exhausts", "notice", "makes a value longer in very many turns")


def _from_outside(name: str) -> Value:
    """What a name stands for that the template does not assign."""
    if name in _FUNCTIONS:
        return values.of(FUNCTION)
    if name in _OBJECTS:
        return values.of(OBJECT)
    if name in ("varargs", "kwargs"):  # of a macro, which the template calls
        return values.of(BUILT)
    return values.of(DATA if name in _GIVEN else TOKEN)


def _taken_from(base: Value) -> Value:
    """A part of it, or what a method of it gives."""
    marks = base.marks - {FUNCTION, OBJECT}
    return values.of(*marks) if marks else values.of(DATA)


def _grown(name: str, base: Value, given: list[Value]) -> int:
    """How long a text may get in which another is put many times."""
    longest = max((each.size for each in given), default=0)
    return base.size * longest if name in ("replace", "join") else 0


def _spelt(node: nodes.Node) -> str:
    if isinstance(node, nodes.Name):
        return str(node.name)
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        return f"{node.node.name}.{node.attr}"
    return ""


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _is_escape(name: str) -> bool:
    return name.startswith("__") or name in _ESCAPES


def _format_names(text: str) -> list[str]:
    """The attributes and items that the fields of a format string take."""
    fields = (field.partition("}")[0] for field in text.split("{")[1:])
    return [part for field in fields for part in field.replace("[", ".").replace("]", "").split(".")[1:]]


# Attributes that lead from a value to its class, its module, or the frame it runs in.
_ESCAPES = frozenset(
    (
        "__class__ __base__ __bases__ __mro__ __subclasses__ __globals__ __builtins__ __import__ __init__ "
        "__dict__ __getattribute__ __getattr__ __getitem__ __func__ __self__ __code__ __closure__ __module__ "
        "__reduce__ __reduce_ex__ __call__ __loader__ __spec__ __wrapped__ __new__ __init_subclass__ "
        "mro func_globals func_code func_closure im_class im_func im_self "
        "gi_frame gi_code gi_yieldfrom cr_frame cr_code cr_await ag_frame ag_code "
        "f_globals f_locals f_builtins f_back f_code tb_frame tb_next co_code _TemplateReference__context"
    ).split()
)
_FUNCTIONS = frozenset(
    "cycler joiner lipsum range dict namespace raise_exception strftime_now caller".split()
)
_OBJECTS = frozenset({"self", "loop"})
# What whoever renders a template gives it, whatever stands beside the template.
_GIVEN = frozenset("messages tools documents add_generation_prompt true false none True False None".split())
_OWN = frozenset({BUILT, TOKEN})  # marks of what whoever wrote the template may have written
_FORMATTING = frozenset({"format", "format_map"})
_NUMBER = re.compile(r"\d{7,}")
# Functions and methods that give numbers, or yes or no.
_COUNTING = frozenset({"range", "raise_exception"})
_ANSWERING = frozenset(
    "startswith endswith isdigit isalpha isalnum isnumeric isdecimal isspace isupper islower istitle "
    "isidentifier count find rfind index rindex append extend insert clear remove add update sort".split()
)
_TAKING = frozenset("get pop setdefault popitem copy items keys values".split())
_MAKERS = frozenset({"cycler", "joiner", "namespace"})
# Names that templates get only from those who run them without a sandbox.
_PYTHON = frozenset(
    "eval exec compile open getattr globals locals vars os sys subprocess builtins importlib".split()
)
_AS_TEXT = frozenset(
    "string join list tojson pprint e escape upper lower format urlencode first last".split()
)
_BY_NAME = frozenset("selectattr rejectattr select reject sort unique min max groupby dictsort map".split())
_PICKING = _BY_NAME - {"map"} | {"random", "batch", "slice", "items"}
# Filters that take attributes by name, and which of their arguments the name is.
_BY_ATTRIBUTE = {
    **dict.fromkeys(("map", "selectattr", "rejectattr", "groupby", "sum"), 0),
    **dict.fromkeys(("unique", "min", "max", "join"), 1),
    "sort": 2,
}
_PUTTING_IN = frozenset({"append", "insert", "extend", "add", "update", "setdefault"})
# What makes something as long as a number says.
_LENGTHS = frozenset(
    "format range lipsum center ljust rjust zfill expandtabs indent wordwrap batch slice truncate "
    "round".split()
)
