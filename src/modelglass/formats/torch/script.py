"""The code of a TorchScript archive: what of it runs when the file is loaded, and what that can reach.

It is TorchScript, which looks like Python, and its words are all that is read of it: which functions there
are, what each one calls, and whether that leads from a `__setstate__`, which loading runs, to an operator
that touches more than tensors. Functions are told apart by name only, which errs on the side of caution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from modelglass.formats.archives import zip as zips
from modelglass.formats.pickles.objects import Pairs, as_text
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

MOST_NBYTES = 32 << 20  # of code in one archive; what models are made of takes a few hundred kB
AT_LOAD = "__setstate__"
_OWN = "__torch__/torch/"  # where torch's own classes are, which have such methods when they are quantized

# Comments and strings as TorchScript knows them, then words; one without its end goes on, and takes no time.
_WORD = re.compile(
    r"\#[^\n]*+"
    r'|"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|(\^?[A-Za-z_][A-Za-z0-9_]*+(?:[\s\\]*+\.[\s\\]*+[A-Za-z_][A-Za-z0-9_]*+)*+)"
    r"|\)[\s\\]*+\.[\s\\]*+([A-Za-z_][A-Za-z0-9_]*+)",
    re.DOTALL,
)
_LOOKED_UP = re.compile(r"\bgetattr[\s\\]*+\([\s\\(]*+(?:torch|ops)\b")
_COMPUTED = "getattr of torch"
_SPACE = re.compile(r"[\s\\]+")
# Operators that read and write files, call Python, or other machines; torch.x and ops.aten.x are the same.
_REACHING = frozenset(
    {"save", "from_file", "PythonOp", "IgnoredPythonOp", "rpc_async", "rpc_remote", "rpc_sync", "load_tensor"}
)
_OWN_OPERATORS = frozenset(
    {
        *("_quantized", "aten", "metal", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "prepacked", "prim"),
        *("prims", "profiler", "quantization", "quantized", "sparse", "static_runtime", "vulkan", "xnnpack"),
    }
)


@dataclass(slots=True)
class _Code:
    """Functions of an archive by name, with all the words in them."""

    words: dict[str, set[str]] = field(default_factory=dict)
    at_load: list[str] = field(default_factory=list)  # members with a method that loading runs

    def add(self, name: str, words: set[str]) -> None:
        self.words.setdefault(name, set()).update(words)

    def from_loading(self) -> set[str]:
        """The words of all functions that loading may run."""
        reached: set[str] = set()
        waiting, seen = [AT_LOAD], {AT_LOAD}
        while waiting:
            words = self.words.get(waiting.pop(), set())
            reached |= words
            called = {word.rpartition(".")[2] for word in words} & self.words.keys()
            waiting += called - seen
            seen |= called
        return reached


def judge(source: Source, archive: zips.Archive, reading: Reading, mobile: Any) -> None:
    """Find what the code of an archive can do; `mobile` is the code as it is for phones, if there is any."""
    code = _Code()
    left = MOST_NBYTES
    for entry in archive.entries:
        if not entry.name.endswith(".py"):
            continue
        if entry.nbytes > left:
            text = f"more than {MOST_NBYTES:,} bytes of code; what is beyond is not read"
            reading.found(source, "code.torchscript", "limit", text, member=entry.name)
            break
        left -= entry.nbytes
        data = archive.member(entry, reading.limits).up_to(0, entry.nbytes)
        if _add(code, data.decode("utf-8", "replace")):
            code.at_load.append(entry.name)
    _add_mobile(code, mobile)
    _tell(code, source, reading)


def _add(code: _Code, text: str) -> bool:
    """Take the functions of a text apart; whether one of them runs at load."""
    found = False
    function, words, expects_name = "", set[str](), False
    for match in _WORD.finditer(text):
        word = match[1] or match[2]
        if word is None:
            continue
        if expects_name:
            code.add(function, words)
            function, words, expects_name = word, set(), False
            found = found or word == AT_LOAD
        elif word == "def":
            expects_name = True
        else:
            words.add(_SPACE.sub("", word))
    code.add(function, words)
    if _LOOKED_UP.search(text):
        for each in code.words.values():
            each.add(_COMPUTED)
    return found


def _add_mobile(code: _Code, bytecode: Any) -> None:
    """Bytecode has its operators in tables, and methods under their full names; all count as one function."""
    texts = set(_texts(bytecode))
    operators = {"ops." + text.replace("::", ".") for text in texts if "::" in text}
    if any(text.endswith(f".{AT_LOAD}") for text in texts):
        code.add(AT_LOAD, operators)
        code.at_load.append("bytecode.pkl")
    else:
        code.add("", operators)


def _texts(value: Any) -> Iterator[str]:
    waiting, seen = [value], dict[int, Any]()
    while waiting:
        each = waiting.pop()
        if isinstance(each, (str, bytes)):
            yield as_text(each)
        elif isinstance(each, (list, tuple, Pairs)) and id(each) not in seen:
            seen[id(each)] = each
            waiting += each.flat if isinstance(each, Pairs) else each


def _tell(code: _Code, source: Source, reading: Reading) -> None:
    at_load = code.from_loading() if code.at_load else set()
    reaching = sorted(filter(_reaches, at_load))
    foreign = sorted(filter(_is_foreign, at_load))
    shown = ", ".join((*reaching, *foreign)[:5])[:300]
    if shown:
        text = f"its code runs when it is loaded ({AT_LOAD}), and reaches beyond tensors: {shown}"
        reading.found(source, "code.setstate", "high", text, member=code.at_load[0], names=shown)
    elif any(_OWN not in member for member in code.at_load):
        text = f"its code runs when it is loaded: classes have a {AT_LOAD} of their own"
        reading.found(source, "code.setstate", "notice", text, member=code.at_load[0])
    later = sorted({word for words in code.words.values() for word in words if _reaches(word)} - at_load)
    if later:
        shown = ", ".join(later[:5])[:300]
        text = f"its code reaches beyond tensors when the model runs: {shown}"
        reading.found(source, "code.effects", "notice", text, names=shown)


def _reaches(word: str) -> bool:
    if word.startswith("^") or word == _COMPUTED:  # a function in Python, or one that is looked up
        return True
    return word.startswith(("torch.", "ops.")) and word.rpartition(".")[2] in _REACHING


def _is_foreign(word: str) -> bool:
    """Whether an operator is one of another library, or of torch's for other machines."""
    parts = word.split(".")
    return parts[0] == "ops" and len(parts) > 2 and parts[1] not in _OWN_OPERATORS
