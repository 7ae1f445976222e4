"""Everything that a pickle would build, walked once: what in it is code, or a pickle of its own.

Nothing is cut off by depth or number: the machine has built all of it, and has bounded it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from modelglass.formats.pickles.objects import (
    Blob,
    Elements,
    Global,
    Pairs,
    Persistent,
    Record,
    Thing,
    as_text,
    preview,
)

_Place: TypeAlias = tuple["_Place | None", str]  # the way to a value: where its container is, and its key
MOST_KEYS = 60  # of the way to a finding that are told; readers of JSON take no deeper trees
MOST_NAMES = 50  # of one finding

# Keys of configurations that name code, as readers of JSON and YAML know them, too.
_REFERENCES = frozenset(
    {"_target_", "class_path", "_instantiator", "auto_map", "chat_template", "class_name"}
)
_DICTS = frozenset(
    ("collections.OrderedDict", "collections.UserDict", "collections.defaultdict", "builtins.dict")
)
_BESIDE = frozenset({"module", "registered_name", "config"})  # by which the last of them is judged
_METHODS = frozenset({"forward", "__call__"})  # of which an object can have its own instead of its class's
_SIMPLE = frozenset((Global, int, float, bool, type(None)))
_HEADS = frozenset("\x80ci(]})")  # with which a pickle may begin


class Inside:
    """What was found below some values; each container is looked into once."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self.references: list[dict[str, Any]] = []  # small trees in which a configuration names code
        self.maybe_pickles: list[str | bytes | Blob] = []
        self.hooks: list[tuple[str, Any]] = []  # under which name something runs with the model, and what
        self._seen: dict[int, Any] = {}  # by identity; kept, so that nothing else gets it
        self._waiting: list[tuple[Any, _Place | None]] = []
        for root in roots:
            self._offer(root, None)
        while self._waiting:
            self._look_into(*self._waiting.pop())

    def _offer(self, value: Any, place: _Place | None) -> None:
        """Look at a value now, or later if it holds others."""
        if isinstance(value, (str, bytes, Blob)):
            head = value.head[:1] if isinstance(value, Blob) else value[:1]
            if (head if isinstance(head, str) else head.decode("latin-1")) in _HEADS:
                self.maybe_pickles.append(value)
        elif type(value) not in _SIMPLE and id(value) not in self._seen:
            self._seen[id(value)] = value
            if type(value) is not Record or value.asked_for:
                self._waiting.append((value, place))

    def _look_into(self, value: Any, place: _Place | None) -> None:
        if type(value) is Pairs:
            self._in_dict(value, place)
        elif isinstance(value, Thing):
            self._in_thing(value, place)
        elif isinstance(value, Elements):
            self._numbered(value.items, place)
        elif isinstance(value, Persistent):
            self._offer(value.id, place)
        elif isinstance(value, (list, tuple)):
            self._numbered(value, place)

    def _numbered(self, values: Iterable[Any], place: _Place | None) -> None:
        for number, value in enumerate(values):
            if type(value) not in _SIMPLE:
                self._offer(value, (place, f"[{number}]"))

    def _in_dict(self, pairs: Pairs, place: _Place | None) -> None:
        names_code = False
        for key, value in pairs.items():
            if type(key) is not str:
                self._offer(key, place)
            name = key if type(key) is str else text_of(key)
            names_code = names_code or name in _REFERENCES
            if type(value) not in _SIMPLE:
                self._offer(value, (place, name))
            if name[:1] in _HEADS:
                self._offer(name, place)
        if names_code:
            self.references.append(_tree(pairs, place))

    def _in_pairs(self, args: Any, place: _Place | None) -> None:
        """A dictionary that is made of a list of pairs, as Python 2 wrote ordered ones."""
        made = Pairs()
        for pairs in args if type(args) is tuple else ():
            for pair in pairs if isinstance(pairs, (list, tuple)) else ():
                made.flat += pair if isinstance(pair, (list, tuple)) and len(pair) == 2 else ()
        if any(type(key) is str and key in _REFERENCES for key in made.flat[::2]):
            self.references.append(_tree(made, place))

    def _in_thing(self, thing: Thing, place: _Place | None) -> None:
        if thing.path in _DICTS:
            self._in_pairs(thing.args, place)
        for held in (thing.args, thing.kwargs, thing.state, thing.pairs, thing.listed):
            self._offer(held, place)
        for part in thing.state if type(thing.state) is tuple else (thing.state,):
            for key, value in part.items() if type(part) is Pairs else ():
                name = text_of(key)
                if name.endswith("hooks"):
                    self.hooks += ((name, hook) for hook in _hooks(value))
                elif name in _METHODS and (type(value) is Global or isinstance(value, Thing)):
                    self.hooks.append((name, value))


def text_of(value: Any) -> str:
    """The text that a value is or would be: also of a node of OmegaConf, or made by a call; or ""."""
    if isinstance(value, (str, bytes)):
        return as_text(value)
    if isinstance(value, Thing):
        node = value.state.get("_val") if type(value.state) is Pairs else None
        args = value.args if type(value.args) is tuple else ()
        return as_text(node) or (as_text(args[0]) if args else "")
    return ""


def _hooks(value: Any) -> Iterator[Any]:
    """What a dictionary of hooks has, with what torch may have put around it."""
    pairs = value.pairs if isinstance(value, Thing) else value
    for _, hook in pairs.items() if type(pairs) is Pairs else ():
        state = hook.state if isinstance(hook, Thing) else None
        inner = state.get("hook") if type(state) is Pairs else None
        for each in (hook, inner):
            if type(each) is Global or isinstance(each, Thing):
                yield each


def _tree(pairs: Pairs, place: _Place | None) -> dict[str, Any]:
    """What a dictionary says of code, below the keys that lead to it."""
    tree: dict[str, Any] = {}
    for key, value in pairs.items():
        name = text_of(key)
        if name in _REFERENCES or name in _BESIDE:
            tree[name] = _plain(value)
    for _ in range(MOST_KEYS):
        if place is None:
            break
        place, name = place
        tree = {name[:200]: tree}
    return tree


def _plain(value: Any) -> Any:
    """Texts and their containers; of something that the file computes, a few words."""
    if isinstance(value, (list, tuple)):
        return [text_of(each) for each in value[:MOST_NAMES]]
    items = value if type(value) is Pairs else value.pairs if isinstance(value, Thing) else None
    if items is not None:
        found = list(items.items())[:MOST_NAMES]
        return {text_of(key): [text_of(each) for each in _several(inner)] for key, inner in found}
    return text_of(value) or preview(value)


def _several(value: Any) -> Any:
    return value[:MOST_NAMES] if isinstance(value, (list, tuple)) else (value,)
