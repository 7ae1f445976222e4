"""Documents beside weights: which code they name, that loading the model would import or run.

Nothing is imported, rendered or constructed: a tree of dicts, lists and texts is walked.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from modelglass.formats.jinja.chat_templates import judge
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Json, Level

_SHOWN = 100  # findings of one code

_Node: TypeAlias = tuple["_Node | None", str]  # the way to a value: where its container is, and its key


def code_references(source: Source, reading: Reading, *documents: Json) -> None:
    """Find what code trees of dicts and lists name; they may be deep, and hold a value twice.

    Each finding has the place in its tree under `path` in its details, as in "trainer.model._target_".
    """
    found = Findings(source, reading)
    seen: set[int] = set()
    pending: list[tuple[Json, _Node | None]] = [(document, None) for document in reversed(documents)]
    while pending:
        value, node = pending.pop()
        is_mapping = isinstance(value, Mapping)
        if not is_mapping and not isinstance(value, (list, tuple)):
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_mapping:
            _look_at(value, node, found)
        _look_at_expressions(value, node, found)
        items = ((item, (node, name)) for name, item in _items(value) if _may_hold(item))
        pending.extend(reversed(list(items)))
    found.close()


class Findings:
    """Findings of one document: the first of each kind one by one, the rest as a number."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.counts: Counter[tuple[str, Level]] = Counter()

    def add(self, code: str, level: Level, text: str, *, offset: int | None = None, **details: Json) -> None:
        if self.wants(code, level):
            self.reading.found(self.source, code, level, text, offset=offset, **details)

    def wants(self, code: str, level: Level) -> bool:
        """Count one more, and tell whether it is to be shown."""
        self.counts[code, level] += 1
        return self.counts[code, level] <= _SHOWN

    def close(self) -> None:
        for (code, level), count in self.counts.items():
            if count > _SHOWN:
                more = count - _SHOWN
                self.reading.found(self.source, code, level, f"{more:,} more of this kind", count=more)


def _may_hold(value: Json) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _items(value: Json) -> Iterator[tuple[str, Json]]:
    """What a mapping or a list holds, by the names that paths have for it."""
    if isinstance(value, Mapping):
        return ((_key(key), item) for key, item in value.items())
    return ((f"[{index}]", item) for index, item in enumerate(value))


def _key(key: Json) -> str:
    return key if isinstance(key, str) else repr(key)[:80]


def _path(node: _Node | None, last: str) -> str:
    parts = [last]
    while node is not None and len(parts) < 70:
        node, part = node
        parts.append(part[:200])
    text = ""
    for part in reversed(parts):
        text += part if part.startswith("[") or not text else f".{part}"
    return text if node is None else f"….{text}"


def _look_at(value: Mapping[Json, Json], node: _Node | None, found: Findings) -> None:
    for key, (code, what) in _REFERENCES.items():
        named = value.get(key)
        if isinstance(named, str) and named:
            level: Level = "info" if named in _OF_HYDRA else "notice"
            found.add(code, level, f"{what} {named[:200]!r}", path=_path(node, key), names=named[:200])
    if value.get("auto_map"):
        _look_at_auto_map(value["auto_map"], node, found)
    for key in value:
        if isinstance(key, str) and "chat_template" in key:
            _look_at_template(value[key], key, node, found)
        elif isinstance(key, str) and key.removesuffix("_internal").endswith("_implementation"):
            _look_at_kernels(value[key], key, node, found)
    _look_at_parts(value, node, found)
    if isinstance(value.get("class_name"), str):
        _look_at_keras(value, value["class_name"], node, found)
    if node is None:
        _look_at_top(value, found)
    if isinstance(value.get("type"), str) and {"idx", "name", "path"} <= value.keys():
        _look_at_sentence_transformers(value["type"], node, found)


def _look_at_top(value: Mapping[Json, Json], found: Findings) -> None:
    """What libraries look for in files of certain names only."""
    file = os.path.basename(found.source.member or found.source.file)
    if file == "config.json" and isinstance(value.get("model_file"), str):
        _look_at_model_file(value["model_file"], found)
    if file == "model_index.json":
        _look_at_diffusers(value, found)


def _look_at_auto_map(auto_map: Json, node: _Node | None, found: Findings) -> None:
    """A mapping of names, a list of them, or one; each name may be a list again."""
    pending, names, seen = [auto_map], list[str](), set[int]()
    while pending and len(names) < 50:
        value = pending.pop()
        if isinstance(value, str) and value:
            names.append(value[:200])
        elif _may_hold(value) and id(value) not in seen:
            seen.add(id(value))
            pending += reversed([item for _, item in islice(_items(value), 50)])
    if not names:
        return
    files = sorted({_python_file(name) for name in names})
    shown = ", ".join(repr(file) for file in files[:10])
    text = f"loading with trust_remote_code runs the Python files {shown}"
    found.add("code.auto-map", "notice", text, path=_path(node, "auto_map"), names=names)


def _python_file(name: str) -> str:
    """The file of a class: "org/repo--modeling_x.Net" is in modeling_x.py of that repository."""
    repository, _, local = name.rpartition("--")
    file = local.rpartition(".")[0].replace(".", "/") + ".py"
    return f"{repository}/{file}" if repository else file


def _look_at_template(template: Json, key: str, node: _Node | None, found: Findings) -> None:
    """A template as a text, a list of {name, template}, or a mapping of names."""
    pending: list[tuple[Json, _Node | None, str]] = [(template, node, key)]
    seen: set[int] = set()
    while pending:
        value, above, key = pending.pop()
        if isinstance(value, str) and value:
            judge(value, found.source, found.reading, path=_path(above, key))
        elif _may_hold(value) and id(value) not in seen:
            seen.add(id(value))
            pending += [(item, (above, key), name) for name, item in _items(value) if name != "name"]


def _look_at_parts(value: Mapping[Json, Json], node: _Node | None, found: Findings) -> None:
    """Names of code under keys that mean it only together with others."""
    target = value.get("target")
    # An exported program names its operators so, which are looked up and never imported.
    if isinstance(target, str) and _DOTTED.fullmatch(target) and not target.startswith("torch.ops."):
        is_class = target.rpartition(".")[2][:1].isupper()  # NeMo writes only that, latent diffusion "params"
        if is_class or "params" in value:
            text = f"building it imports and calls {target[:200]!r}"
            found.add("code.target", "notice", text, path=_path(node, "target"), names=target[:200])
    library = value.get("parent_library")
    if isinstance(library, str) and library.partition(".")[0] not in _PEFT:
        text = f"loading the adapter alone imports {library[:200]!r}"
        found.add("code.module", "notice", text, path=_path(node, "parent_library"), names=library[:200])
    pipeline = value.get("impl")
    if (
        isinstance(pipeline, str)
        and node is not None
        and node[0] is not None
        and node[0][1] == "custom_pipelines"
    ):
        text = f"loading with trust_remote_code runs the Python files {_python_file(pipeline[:200])!r}"
        found.add("code.auto-map", "notice", text, path=_path(node, "impl"), names=[pipeline[:200]])
    generate = value.get("custom_generate")
    if isinstance(generate, str) and generate:
        text = f"generating with trust_remote_code runs code of {generate[:200]!r}"
        path = _path(node, "custom_generate")
        found.add("code.auto-map", "notice", text, path=path, names=[generate[:200]])


def _look_at_kernels(value: Json, key: str, node: _Node | None, found: Findings) -> None:
    """Attention and experts by a kernel of a repository; a mapping has one for each part of the model."""
    for name in value.values() if isinstance(value, Mapping) else (value,):
        if isinstance(name, str) and "/" in name:
            text = f"loading fetches and runs the kernel {name[:200]!r}"
            found.add("code.kernel", "notice", text, path=_path(node, key), names=name[:200])


def _look_at_expressions(value: Json, node: _Node | None, found: Findings) -> None:
    """Texts that MONAI's bundles have evaluated."""
    if isinstance(value, (list, tuple)) and not all(isinstance(each, str) for each in value):
        return  # pieces of a vocabulary have numbers beside them
    for key, item in _items(value):
        if isinstance(item, str) and item.startswith("$") and _EXPRESSION.match(item[:_LONGEST]):
            text = f"a loader that knows such texts evaluates {item[1:200]!r}"
            found.add("code.expression", "notice", text, path=_path(node, key))


def _look_at_keras(value: Mapping[Json, Json], class_name: str, node: _Node | None, found: Findings) -> None:
    path, module = _path(node, "class_name"), value.get("module")
    if class_name.rpartition(">")[2] == "Lambda" and "config" in value:
        found.add("code.lambda", "high", "a Lambda layer holds Python code that loading may run", path=path)
    elif class_name == "__lambda__":
        found.add("code.lambda", "high", "a serialized Python function, as marshalled bytecode", path=path)
    elif class_name == "TorchModuleWrapper" and "config" in value:
        found.add("code.lambda", "high", "a PyTorch module as a pickle, which loading may run", path=path)
    elif class_name == "TFSMLayer" and "config" in value:
        found.add("code.module", "notice", "loading loads another model, which may be anywhere", path=path)
    elif (registered := _registered(value, class_name)) is not None:
        text = f"loading needs the class {registered[:200]!r}, which has to be registered"
        found.add("code.module", "notice", text, path=path, names=registered[:200])
    elif isinstance(module, str) and "config" in value:
        outside = module.partition(".")[0] not in _KERAS
        if outside or class_name == "function":
            text = f"loading looks up {class_name[:200]!r} in the Python module {module[:200]!r}"
            found.add("code.module", "notice", text, path=path, names=f"{module[:200]}.{class_name[:200]}")


def _registered(value: Mapping[Json, Json], class_name: str) -> str | None:
    """The name under which somebody's class is registered, as in "package>Name"; None: it is Keras' own."""
    names = (name for name in (value.get("registered_name"), class_name) if isinstance(name, str))
    return next((name for name in names if ">" in name and name.partition(">")[0] not in _KERAS), None)


def _look_at_model_file(file: str, found: Findings) -> None:
    if file.endswith(_IMPORTED):
        text = f"loading with mlx-lm runs the Python file {file[:200]!r}"
        found.add("code.model-file", "high", text, path="model_file", names=file[:200])


def _look_at_diffusers(value: Mapping[Json, Json], found: Findings) -> None:
    """Parts of a pipeline are pairs of a library, or a file of the folder, and a class."""
    for key, part in value.items():
        if not isinstance(part, (list, tuple)) or len(part) != 2 or not all(isinstance(x, str) for x in part):
            continue
        if part[0].partition(".")[0] not in _DIFFUSERS:
            named = f"{part[0][:200]}.{part[1][:200]}"
            text = f"loading the pipeline imports {part[0][:200]!r} for the class {part[1][:200]!r}"
            found.add("code.module", "notice", text, path=_key(key), names=named)


def _look_at_sentence_transformers(type: str, node: _Node | None, found: Findings) -> None:
    if type.partition(".")[0] != "sentence_transformers":
        text = f"loading with sentence-transformers imports {type[:200]!r}"
        found.add("code.module", "notice", text, path=_path(node, "type"), names=type[:200])


_REFERENCES = {
    "_target_": ("code.target", "building it imports and calls"),
    "class_path": ("code.class-path", "building it imports and calls"),
    "_instantiator": ("code.instantiator", "loading it imports and calls"),
}
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_EXPRESSION = re.compile(r"\$\s*(?:import\s|from\s+[\w.]+\s+import\s|lambda\b|[^\r\n]*\w\(.*\))", re.DOTALL)
_LONGEST = 10_000  # characters of a text in which an expression is looked for
_PEFT = frozenset({"transformers", "diffusers", "timm", "torch", "sentence_transformers", "peft"})
_PLUGINS = "hydra._internal.core_plugins"
_OF_HYDRA = (  # what it writes beside every run
    f"{_PLUGINS}.basic_launcher.BasicLauncher",
    f"{_PLUGINS}.basic_sweeper.BasicSweeper",
)
_IMPORTED = (".py", ".pyc", ".so", ".pyd")  # what Python imports by its suffix
_DIFFUSERS = frozenset({"diffusers", "transformers", "stable_diffusion", "onnxruntime", "optimum", "peft"})
_KERAS = frozenset({"keras", "keras_core", "tf_keras", "keras_hub", "keras_nlp", "keras_cv", "tensorflow"})
