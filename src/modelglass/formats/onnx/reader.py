"""ONNX: a graph of operators and its weights, as one protobuf message; weights may lie in files beside it.

Weights are not read. Those of the main graph keep their names; others get the path to them: "node/value" for
a tensor in an attribute, "node/then_branch/w" for an initializer of a subgraph, "domain.name/node/value"
in a function, "training_0/algorithm/w" in a training graph, "w/indices" for the indices of a sparse tensor. A
node without a name is called by its first output. Where that is still not unique, "#2" and so on follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeAlias

from modelglass.formats.onnx.messages import (
    ATTRIBUTE,
    ATTRIBUTE_FIELDS,
    FUNCTION,
    GRAPH,
    LONG_ENTRY,
    MODEL,
    NODE,
    OPSET,
    TRAINING,
    VALUE_INFO,
    Type,
    type_of,
)
from modelglass.formats.onnx.tensors import Stored, Tensors
from modelglass.formats.protobuf import DEEPEST, LENGTH, VARINT, Span, Wire
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Json, Level, Op, Value

_SHORT_TEXT = 1_000  # characters of a description, or of a text in an attribute, that are kept
_LONG_SCOPE = 400  # characters of a path to a tensor
_SHORT_TYPE = 100  # bytes of a type that is kept, to be known again
_LONG_LIST = 1_000  # numbers or texts of an attribute that are listed

_STANDARD = ("", "ai.onnx.training", "ai.onnx.preview", "org.pytorch")
_COMMON = ("ai.onnx.ml", "com.microsoft")
# Operators of a common domain that run what the model names: Python code, or a compiled program.
_RUNS_CODE = {("com.microsoft", name) for name in ("PyOp", "PythonOp", "PythonOpGrad", "EPContext")}

_DEFAULTS = {"f": 0.0, "i": 0, "s": "", "floats": [], "ints": [], "strings": []}

# What an ONNX file starts with: the fields of its first message, and the tags that may follow in theirs.
_NUMBERS, _TEXTS, _DESCRIPTION = (1, 5), (2, 3, 4), 6
_TAGS = {
    7: bytes((0x0A, 0x12, 0x2A, 0x52, 0x5A, 0x62, 0x6A, 0x72, 0x7A, 0x82)),
    8: bytes((0x0A, 0x10)),
    14: bytes((0x0A, 0x12)),
    20: bytes((0x0A, 0x12, 0x1A, 0x22)),
    25: bytes((0x0A, 0x22, 0x2A, 0x32, 0x3A, 0x42, 0x4A, 0x52, 0x5A, 0x62, 0x6A, 0x72)),
    26: bytes((0x0A, 0x10, 0x1A)),
}

_Walk: TypeAlias = "Iterator[_Walk]"  # a reader of a graph; gives the readers of the graphs inside it


def read(source: Source, reading: Reading) -> None:
    """Read the model of an ONNX file: its tensors, nodes, inputs, outputs and what it says about itself."""
    reading.format = "onnx"
    reader = _Reader(source, reading)
    try:
        reader.model()
    finally:
        reader.deliver()


def looks_like(head: bytes, nbytes: int) -> bool:
    """Whether a file of that size with these first bytes may be ONNX; there is no magic number."""
    if not any(byte < 9 or 14 <= byte < 32 for byte in head[:256]):
        return False  # text
    at, seen = 0, set()
    while at < len(head):
        tag, at = _peek(head, at)
        value, at = _peek(head, at)
        if at > len(head):
            break  # the head ends inside
        number, content = tag >> 3, head[at : at + value]
        if number in _NUMBERS:
            if tag & 7 != VARINT or (number == 1 and not 0 < value < 1000):
                return False
        elif tag & 7 != LENGTH or at + value > nbytes or not _plausible(number, content):
            return False
        else:
            at += value
        seen.add(number)
    return bool(seen & {1, 7})


def _peek(head: bytes, at: int) -> tuple[int, int]:
    """The varint at a position and the position after it, which is beyond the head when it is cut."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(head):
            return 0, len(head) + 1
        value |= (head[at] & 0x7F) << shift
        at += 1
        if head[at - 1] < 0x80:
            break
    return value, at


def _plausible(number: int, content: bytes) -> bool:
    if number in _TEXTS:
        return min(content, default=32) >= 32
    if number == _DESCRIPTION:
        return b"\0" not in content
    return number in _TAGS and (not content or content[0] in _TAGS[number])


@dataclass(slots=True, kw_only=True)
class _Node:
    type: str
    domain: str
    overload: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class _Main:
    """What is kept of the main graph."""

    nodes: list[_Node] = field(default_factory=list)
    tensors: dict[str, Stored] = field(default_factory=dict)  # initializers and constants, by value name
    initializers: set[str] = field(default_factory=set)
    types: dict[str, Type] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class _Reader:
    def __init__(self, source: Source, reading: Reading) -> None:
        self._source, self._reading = source, reading
        self._wire = Wire(source, reading.limits)
        self._tensors = Tensors(self._wire, reading)
        self._main = _Main()
        self._operators: Counter[tuple[str, str]] = Counter()  # of all graphs and functions
        self._kept = 0  # nodes and values
        self._told: set[str] = set()
        self._types: dict[bytes, Type] = {}
        self._functions: dict[tuple[str, str, str], None] = {}

    def model(self) -> None:
        """Read the whole file."""
        metadata = self._reading.metadata
        training = 0
        for name, value, _ in self._wire.entries(Span(0, self._source.nbytes), MODEL, "the model"):
            if name == "graph":
                _run(self._graph(value, 1, "", self._main))
                metadata.setdefault("graph", "")
            elif name == "opset_import":
                self._opset(value)
            elif name == "metadata_props":
                self._property(value)
            elif name == "functions":
                _run(self._function(value))
            elif name == "training_info":
                self._training(value, training)
                training += 1
            elif name == "doc_string":
                metadata[name] = self._text(value, _SHORT_TEXT)
            else:
                metadata[name] = value
        if "graph" not in metadata:
            raise self._source.corrupt("the model has no graph", code="onnx.no-graph")
        for name in ("ir_version", "opset_import"):
            if name not in metadata:
                self._reading.found(
                    self._source,
                    "onnx.no-version",
                    "invalid",
                    f"the model does not have the field {name!r}, which specifies how to read it",
                )

    def deliver(self) -> None:
        """Hand over what was read, also when reading had to stop."""
        self._tensors.name_all()
        self._tensors.check_overlaps()
        reading, main = self._reading, self._main
        reading.tensors.extend(stored.tensor() for stored in self._tensors.found)
        reading.places = {
            **reading.places,
            **{stored.name: stored.place for stored in self._tensors.found if stored.place is not None},
        }
        reading.inputs.extend(self._end(name) for name in main.inputs if name not in main.initializers)
        reading.outputs.extend(map(self._end, main.outputs))
        reading.ops.extend(self._op(index, node) for index, node in enumerate(main.nodes))
        if self._functions:
            reading.metadata["functions"] = [_function_name(*key) for key in self._functions]
        reading.metadata["nodes"] = {
            (f"{domain}.{name}" if domain else name): count
            for (domain, name), count in self._operators.most_common()
        }
        self._report_domains()
        if self._wire.odd_texts:
            reading.found(
                self._source,
                "onnx.text",
                "info",
                f"{self._wire.odd_texts:,} names or texts are not UTF-8",
                count=self._wire.odd_texts,
            )

    def _graph(self, span: Span, depth: int, scope: str, main: _Main | None) -> _Walk:
        if depth > DEEPEST:
            raise self._source.corrupt(
                f"graphs lie more than {DEEPEST} messages deep", code="onnx.depth", offset=span.start
            )
        index, initializers = 0, set() if main is None else main.initializers
        for name, value, _ in self._wire.entries(span, GRAPH, "a graph"):
            if name == "node":
                yield from self._node(value, depth + 1, scope, index, main)
                index += 1
            elif name in ("initializer", "sparse_initializer"):
                take = self._tensors.dense if name == "initializer" else self._tensors.sparse
                stored = take(value, scope, None, "parameter")
                self._once(stored.label, initializers, "initializers", value)
                if main is not None:
                    main.tensors[stored.label] = stored
            elif name != "name":
                self._value_info(value, depth + 1, name, main)
            elif main is not None:
                self._reading.metadata["graph"] = value

    def _value_info(self, span: Span, depth: int, role: str, main: _Main | None) -> None:
        """Read what is said about a value, of whichever graph; only those of the main graph are kept."""
        fields = self._wire.message(span, VALUE_INFO, "a value")
        name = fields.get("name", "")
        self._count(1, span)
        kind = self._type(fields["type"], depth + 1) if "type" in fields else None
        if main is None:
            return
        if kind is not None:
            main.types[name] = kind
        if role != "value_info":
            (main.inputs if role == "input" else main.outputs).append(name)

    def _type(self, span: Span, depth: int) -> Type:
        """The type of a value; most graphs say the same few again and again."""
        if span.stop - span.start > _SHORT_TYPE or depth > DEEPEST // 2:  # it may go too deep only here
            return type_of(self._wire, span, depth, self._reading.limits.dims)
        key = self._wire.raw(span.start, span.stop)
        if key not in self._types:
            self._types[key] = type_of(self._wire, span, depth, self._reading.limits.dims)
        return self._types[key]

    def _node(self, span: Span, depth: int, scope: str, index: int, main: _Main | None) -> _Walk:
        fields = self._wire.message(span, NODE, "a node")
        inputs, outputs = fields.get("input", []), fields.get("output", [])
        kind, domain = fields.get("op_type", ""), fields.get("domain", "")
        if not kind:
            raise self._source.corrupt("a node has no op_type", code="onnx.no-operator", offset=span.start)
        self._count(1 + len(inputs) + len(outputs), span)
        domain = "" if domain == "ai.onnx" else domain
        self._operators[domain, kind] += 1
        attributes: dict[str, Json] = {}
        owner = fields.get("name") or next(filter(None, outputs), f"{kind}_{index}")
        first = len(self._tensors.found)
        for each in fields.get("attribute", ()):
            yield from self._attribute(each, depth + 1, _inside(scope, owner), attributes)
        if main is None:
            return
        overload = fields.get("overload", "")
        main.nodes.append(
            _Node(
                type=kind,
                domain=domain,
                overload=overload,
                inputs=inputs,
                outputs=outputs,
                attributes=attributes,
            )
        )
        if (domain, kind) == ("", "Constant") and len(outputs) == 1 and len(self._tensors.found) > first:
            main.tensors.setdefault(outputs[0], self._tensors.found[first])

    def _attribute(self, span: Span, depth: int, scope: str, into: dict[str, Json]) -> _Walk:
        """Keep the value of an attribute; its tensors join the others, its graphs are read."""
        fields = self._wire.message(span, ATTRIBUTE, "an attribute")
        name, said = fields.get("name", ""), ATTRIBUTE_FIELDS.get(fields.get("type", 0))
        kinds = [kind for kind in ATTRIBUTE_FIELDS.values() if kind in fields]
        if len(kinds) > 1 or (kinds and said not in (None, kinds[0])) or name in into:
            problem = (
                "is there twice" if name in into else f"has values in {', '.join(kinds)}, and the type {said}"
            )
            raise self._source.corrupt(
                f"the attribute {(scope + name)[:200]!r} {problem}", code="onnx.attribute", offset=span.start
            )
        if fields.get("ref_attr_name"):
            into[name] = f"the attribute {fields['ref_attr_name'][:_SHORT_TEXT]} of the function"
            return
        if not kinds:  # writers leave out zeros and empty lists
            into[name] = _DEFAULTS.get(said or "")
            return
        kind, value = kinds[0], fields[kinds[0]]
        if kind in ("g", "graphs"):
            graphs = [value] if kind == "g" else value
            into[name] = "a graph" if kind == "g" else f"{len(graphs):,} graphs"
            for index, graph in enumerate(graphs):
                path = _inside(scope, name if kind == "g" else f"{name}/{index}")
                yield self._graph(graph, depth + 1, path, None)
        else:
            into[name] = self._plain(kind, value, scope, name, depth)

    def _plain(self, kind: str, value: Any, scope: str, name: str, depth: int) -> Json:
        """The value of an attribute that is not a graph, in a form that JSON can hold."""
        if kind == "f":
            return _number(value)
        if kind == "i":
            return value
        if kind == "s":
            return self._text(value, _SHORT_TEXT)
        if kind in ("t", "sparse_tensor"):
            return self._tensor(kind, value, scope, name)
        if kind == "tp":
            return _type_text(type_of(self._wire, value, depth + 1, self._reading.limits.dims))
        if kind == "tensors" or kind == "sparse_tensors":
            return [
                self._tensor(kind, each, _inside(scope, name), str(index)) for index, each in enumerate(value)
            ]
        if len(value) > _LONG_LIST:
            return f"{len(value):,} {kind}"
        if kind == "floats":
            return [_number(each) for each in value]
        if kind == "strings":
            return [self._text(each, _SHORT_TEXT) for each in value]
        if kind == "type_protos":
            dims = self._reading.limits.dims
            return [_type_text(type_of(self._wire, each, depth + 1, dims)) for each in value]
        return value

    def _tensor(self, kind: str, span: Span, scope: str, label: str) -> str:
        take = self._tensors.sparse if kind.startswith("sparse") else self._tensors.dense
        stored = take(span, scope, label, "buffer")
        return _type_text(Type(dtype=stored.dtype, shape=stored.shape))

    def _function(self, span: Span) -> _Walk:
        fields = self._wire.message(span, FUNCTION, "a function")
        name, domain, overload = (fields.get(key, "") for key in ("name", "domain", "overload"))
        key = ("" if domain == "ai.onnx" else domain, name, overload)
        if key in self._functions:
            raise self._source.corrupt(
                f"the function {_function_name(*key)[:200]!r} is there twice",
                code="onnx.duplicate",
                offset=span.start,
            )
        self._functions[key] = None
        scope = _inside("", _function_name(*key))
        attributes: dict[str, Json] = {}
        for each in fields.get("attribute_proto", ()):
            yield from self._attribute(each, 2, scope, attributes)
        for each in fields.get("value_info", ()):
            self._value_info(each, 2, "value_info", None)
        for each in fields.get("opset_import", ()):
            self._wire.message(each, OPSET, "an imported operator set")
        for index, node in enumerate(fields.get("node", ())):
            yield from self._node(node, 2, scope, index, None)

    def _training(self, span: Span, index: int) -> None:
        for name, value, _ in self._wire.entries(span, TRAINING, "the training information"):
            _run(self._graph(value, 2, f"training_{index}/{name}/", None))

    def _opset(self, span: Span) -> None:
        fields = self._wire.message(span, OPSET, "an imported operator set")
        opsets = self._reading.metadata.setdefault("opset_import", {})
        domain = fields.get("domain") or "ai.onnx"
        if domain in opsets and opsets[domain] != fields.get("version", 0):
            text = f"it imports two versions of the operators of {domain[:200]!r}"
            self._twice("onnx.opset", text, span)
        opsets.setdefault(domain, fields.get("version", 0))

    def _property(self, span: Span) -> None:
        fields = self._wire.message(span, LONG_ENTRY, "an entry of metadata_props")
        key = fields.get("key", "")
        properties = self._reading.metadata.setdefault("metadata_props", {})
        if key in properties:
            self._twice("onnx.metadata", f"metadata_props has the key {key[:200]!r} twice", span)
            return
        value = fields.get("value", Span(span.stop, span.stop))
        properties[key] = self._text(value, self._reading.limits.kept_text)

    def _twice(self, code: str, text: str, span: Span) -> None:
        """Tell of the first thing of that sort; a file can hold millions."""
        if code not in self._told:
            self._told.add(code)
            self._reading.found(self._source, code, "invalid", text, offset=span.start)

    def _count(self, number: int, span: Span) -> None:
        """Nodes and their values take far more memory than they take bytes: as many as tensors, at most."""
        self._kept += number
        if self._kept > self._reading.limits.tensors:
            raise self._source.over("tensors", self._reading.limits.tensors, offset=span.start)

    def _once(self, name: str, seen: set[str], what: str, span: Span) -> None:
        if name in seen:
            raise self._source.corrupt(
                f"two {what} of a graph have the name {name[:200]!r}",
                code="onnx.duplicate",
                offset=span.start,
            )
        seen.add(name)

    def _text(self, span: Span, most: int) -> str:
        """The beginning of a text that may be long, or may be no text."""
        nbytes = span.stop - span.start
        data = self._wire.raw(span.start, min(span.stop, span.start + most))
        # A cut may fall inside a character.
        text = data.decode(errors="ignore" if nbytes > most else "backslashreplace")
        return text if nbytes <= most else f"{text}… ({nbytes:,} bytes)"

    def _op(self, index: int, node: _Node) -> Op:
        domain = node.domain or "onnx"
        # A short name is taken from between the dots of the overload, so there are exactly two.
        overload = ".".join(
            part.replace(".", "_") for part in (domain, node.type, node.overload or "default")
        )
        return Op(
            index=index,
            name=f"{domain}.{node.type}",
            overload=overload,
            module="",
            call=None,
            phase="forward",
            attributes=node.attributes,
            inputs=self._values(node.inputs),
            outputs=self._values(node.outputs),
        )

    def _values(self, names: list[str]) -> tuple[Value, ...]:
        # An argument that is left out has an empty name, and keeps its position.
        return tuple(self._value(str(i), name) for i, name in enumerate(names) if name)

    def _value(self, position: str, name: str) -> Value:
        stored = self._main.tensors.get(name)
        if stored is not None:
            shape = stored.shape if stored.packing is None else stored.packing.logical_shape
            return Value(name=position, shape=shape, dtype=stored.dtype, tensor=stored.name)
        known = self._main.types.get(name)
        if known is None or known == Type():
            return Value(name=position, text=name)
        return Value(name=position, shape=known.shape, dtype=known.dtype, text=known.text)

    def _end(self, name: str) -> Value:
        """An input or output of the model, by its own name."""
        known = self._main.types.get(name, Type())
        text = "?" if known == Type() else known.text
        return Value(name=name, shape=known.shape, dtype=known.dtype, text=text)

    def _report_domains(self) -> None:
        """Operators that are neither standard nor defined by the model run code that came from elsewhere."""
        own = {(domain, name) for domain, name, _ in self._functions}
        strange: dict[tuple[str, Level], list[str]] = {}
        for domain, name in sorted(self._operators):
            if (domain, name) in own or _within(domain, _STANDARD):
                continue
            common = _within(domain, _COMMON) and (domain, name) not in _RUNS_CODE
            strange.setdefault((domain, "info" if common else "notice"), []).append(name)
        for (domain, level), names in strange.items():
            shown = ", ".join(name[:100] for name in names[:10])
            more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
            self._reading.found(
                self._source,
                "code.custom-domain",
                level,
                f"it needs operators of the domain {domain[:200]!r}, which are code outside of the model: "
                f"{shown}{more}",
                domain=domain[:1000],
                operators=[name[:1000] for name in names[:1000]],
            )


def _run(root: _Walk) -> None:
    """Read graphs inside graphs, without a call for each level."""
    stack = [root]
    while stack:
        inner = next(stack[-1], None)
        if inner is None:
            stack.pop()
        else:
            stack.append(inner)


def _within(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == each or (each and domain.startswith(f"{each}.")) for each in domains)


def _inside(scope: str, name: str) -> str:
    """The scope of what is inside something. It is in many names, so it stays short."""
    path = f"{scope}{name}/"
    return path if len(path) <= _LONG_SCOPE else f"{path[: _LONG_SCOPE - 2]}…/"


def _function_name(domain: str, name: str, overload: str) -> str:
    return ".".join(filter(None, (domain, name, overload)))


def _number(value: float) -> float | str:
    return value if isfinite(value) else str(value)


def _type_text(kind: Type) -> str:
    shape = kind.text if kind.shape is None else "x".join(map(str, kind.shape)) or "scalar"
    return " ".join(filter(None, (kind.dtype, shape))) or "?"
