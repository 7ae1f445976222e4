"""What a Jinja template reaches: parsed with Jinja's own parser, never compiled, never rendered.

Templates are given data, and may take it apart. What leads from data to Python itself are attributes: of
functions, of classes, of frames. Names of these are looked for however they are spelt, and where a name
cannot be known before the template runs, that is told.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension, do, loopcontrols
from jinja2.parser import Parser

from modelglass.formats import jinja_values as values
from modelglass.formats.jinja_values import BUILT, DATA, FUNCTION, HUGE, OBJECT, TooComplexError, Value
from modelglass.formats.siblings import is_safe_relative
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
        self._fold = values.Folding()
        self._values: dict[int, Value] = {}
        self._names: dict[str, Value] = {}
        self._macros: dict[str, list[str]] = {}
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
        assigned = self._names.get(name)
        if assigned is not None:
            return assigned
        if name in _FUNCTIONS:
            return values.of(FUNCTION)
        return values.of(OBJECT) if name in _OBJECTS else values.of(DATA)

    def _attribute_of(self, node: nodes.Getattr) -> Value:
        base = self._of(node.node)
        if isinstance(node.node, nodes.Name):
            kept = self._names.get(f"{node.node.name}.{node.attr}")  # of a namespace
            if kept is not None:
                return kept
        lists = Value(frozenset(each for each in base.constants if isinstance(each.value, tuple)))
        return values.union((_taken_from(base), values.elements(lists)))  # what a dict has under that name

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
        called = node.node
        arguments = self._all(list(node.args))
        if isinstance(called, nodes.Getattr):
            base, plain = self._of(called.node), not node.kwargs and node.dyn_args is None
            if called.attr in values.CUTTING_METHODS and plain:
                return self._fold.cut(values.CUTTING_METHODS[called.attr], base, *arguments)
            if called.attr in values.METHODS and plain:
                return self._fold.all(values.METHODS[called.attr], base, *arguments)
            made = values.of(BUILT) if values.texts(base) else values.NOTHING
            return values.union((_taken_from(base), made))
        if isinstance(called, nodes.Name) and called.name not in self._names:
            if called.name == "dict" and node.kwargs:
                keys = values.constant(tuple(pair.key for pair in node.kwargs))
                return values.union((keys, self._fold.tuple(self._all([pair.value for pair in node.kwargs]))))
            if called.name == "lipsum":
                return values.of(BUILT)
            if called.name in _MAKERS:
                return values.of(OBJECT)
        return values.of(DATA)

    def _filter_of(self, node: nodes.Filter) -> Value:
        base = self._of(node.node)
        arguments = self._all(list(node.args))
        if node.name in ("default", "d"):
            return values.union((base, *arguments))
        if base.marks & {FUNCTION, OBJECT} and node.name in _AS_TEXT:
            return values.of(
                BUILT
            )  # "<function generate_lorem_ipsum at 0x…>" has many characters to pick from
        plain = not node.kwargs and node.dyn_args is None
        if node.name in values.CUTTING_FILTERS and plain:
            return self._fold.cut(values.CUTTING_FILTERS[node.name], base, *arguments)
        if node.name in values.FILTERS and plain:
            return self._fold.all(values.FILTERS[node.name], base, *arguments)
        if node.name in _PICKING:
            return values.union((values.elements(base), Value(marks=base.marks)))
        made = values.of(BUILT) if base.constants else values.NOTHING
        return values.union((_taken_from(base), made))

    # Assignments

    def _assign(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Assign):
            self._bind(node.target, self._of(node.node), node.node)
        elif isinstance(node, nodes.AssignBlock):
            self._bind(node.target, values.of(BUILT))
        elif isinstance(node, nodes.For):
            self._bind(node.target, values.elements(self._of(node.iter)), over=True)
        elif isinstance(node, nodes.With):
            for target, value in zip(node.targets, node.values, strict=False):
                self._bind(target, self._of(value), value)
        elif isinstance(node, nodes.Macro):
            self._macros[node.name] = [each.name for each in node.args]
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
        names = self._macros.get(macro, [])
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
            self._tell(
                node, "template.object", "notice", f"takes {name[:80]!r} from a function of the engine"
            )
        elif name in ("format", "format_map"):
            self._look_at_format(node, base)

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
        if BUILT in key.marks or ((odd_base or attribute) and not key.is_constant):
            self._computed(node)

    def _computed(self, node: nodes.Node) -> None:
        text = "takes an attribute or item whose name it puts together while it runs"
        self._tell(node, "template.computed", "notice", text)

    def _look_at_format(self, node: nodes.Node, base: Value) -> None:
        for text in values.texts(base):
            if any(_is_escape(part) for part in _format_names(text)):
                self._escapes(node, text)
        if BUILT in base.marks:
            self._tell(node, "template.computed", "notice", "formats with a text that it puts together")

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
                self._look_at_path(node, path)
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            self._tell(node, "template.computed", "notice", "gives a filter arguments that it puts together")
        self._look_at_numbers(node, node.name, [*arguments, *named.values()])

    def _look_at_path(self, node: nodes.Node, path: Value) -> None:
        for text in values.texts(path):
            if any(_is_escape(name) or name.startswith("_") for name in _normal(text).split(".")):
                self._escapes(node, text)
        if BUILT in path.marks:
            self._computed(node)

    def _look_at_call(self, node: nodes.Call) -> None:
        arguments = self._all(list(node.args)) + self._all([pair.value for pair in node.kwargs])
        name = node.node.name if isinstance(node.node, nodes.Name) else getattr(node.node, "attr", "")
        self._look_at_numbers(node, name, arguments)

    def _look_at_numbers(self, node: nodes.Node, name: str, arguments: list[Value]) -> None:
        most = LONGEST_RANGE if name in ("range", "lipsum") else HUGE
        if name in _LENGTHS and any(abs(values.largest(each)) > most for each in arguments):
            self._tell(node, "template.exhausts", "notice", f"calls {name!r} with a huge number")

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
            elif here > 1 and isinstance(node, nodes.Assign):
                self._look_at_growth(node)
            for each in _below(node):
                turns[id(each)] = here

    def _length_of(self, node: nodes.Node) -> int:
        if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name) and node.node.name == "range":
            return max(2, *(values.largest(each) for each in self._all(list(node.args))), 2)
        return max(
            (len(each) for each in values.plain(self._of(node)) if isinstance(each, (str, tuple))), default=2
        )

    def _look_at_growth(self, node: nodes.Assign) -> None:
        target = _spelt(node.target)
        grown = (nodes.Concat, nodes.Add, nodes.Mul)
        if target and isinstance(node.node, grown):
            uses = sum(_spelt(each) == target for each in _everything(node.node))
            if uses > 1:
                self._tell(node, "template.exhausts", "notice", "doubles a value again and again in a loop")


def _taken_from(base: Value) -> Value:
    """A part of it, or what a method of it gives."""
    marks = base.marks - {FUNCTION, OBJECT}
    return values.of(*marks) if marks else values.of(DATA)


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
_MAKERS = frozenset({"cycler", "joiner", "namespace"})
# Names that templates get only from those who run them without a sandbox.
_PYTHON = frozenset(
    "eval exec compile open getattr globals locals vars os sys subprocess builtins importlib".split()
)
_AS_TEXT = frozenset(
    "string join list tojson pprint e escape upper lower format urlencode first last".split()
)
_PICKING = frozenset({"random", "min", "max", "sort", "unique", "batch", "slice", "items", "dictsort"})
# Filters that take attributes by name, and which of their arguments the name is.
_BY_ATTRIBUTE = {
    **dict.fromkeys(("map", "selectattr", "rejectattr", "groupby", "sum"), 0),
    **dict.fromkeys(("unique", "min", "max", "join"), 1),
    "sort": 2,
}
_PUTTING_IN = frozenset({"append", "insert", "extend", "add", "update", "setdefault"})
# What makes something as long as a number says.
_LENGTHS = frozenset(
    "range lipsum center ljust rjust zfill expandtabs indent wordwrap batch slice truncate round".split()
)
