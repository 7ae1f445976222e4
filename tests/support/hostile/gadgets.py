"""Names that published lists warn of, each as a file in every wrapping that a pickle comes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hostile.legacy import PARTS, legacy, tar
from hostile.pickles import (
    MARK,
    POP,
    REDUCE,
    dict_of,
    global_named,
    list_of,
    pickled,
    stack_global,
    text,
    tuple_of,
)
from hostile.torch_files import pt_zip

TABLE = Path(__file__).with_name("gadgets.tsv")
PAYLOAD = text("touch canary")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gadget:
    """Something that a pickle can name, and who says that it is dangerous."""

    module: str
    name: str
    listed: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


def gadgets() -> list[Gadget]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    found = []
    for line in lines:
        path, listed = line.split("\t")
        module, name = path.split(":")
        found.append(Gadget(module=module, name=name, listed=listed))
    return found


def called(gadget: Gadget) -> bytes:
    return global_named(gadget.module, gadget.name) + tuple_of(PAYLOAD) + REDUCE


def _raw(gadget: Gadget) -> bytes:
    made = stack_global(gadget.module, gadget.name) + tuple_of(PAYLOAD) + REDUCE
    return pickled(made, 4)


def _instance(gadget: Gadget) -> bytes:
    """By the oldest opcode, which names and calls in one, in a pickle without a head."""
    return MARK + b"S'x'\ni" + gadget.module.encode() + b"\n" + gadget.name.encode() + b"\n."


def _joblib(gadget: Gadget) -> bytes:
    """Among what joblib writes: a list of an estimator's parts."""
    wrapper = stack_global("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81"
    made = stack_global(gadget.module, gadget.name) + tuple_of(PAYLOAD) + REDUCE
    return pickled(list_of(wrapper, dict_of((text("model"), made))), 4)


def _legacy(gadget: Gadget) -> bytes:
    return legacy({"object": called(gadget) + POP + PARTS["object"]})


# Suffix and content of a file with a gadget in it.
WRAPPINGS: dict[str, tuple[str, Callable[[Gadget], bytes]]] = {
    "torch": (".pt", lambda gadget: pt_zip(pickled(called(gadget)))),
    "pickle": (".pkl", _raw),
    "instance": (".pickle", _instance),
    "joblib": (".joblib", _joblib),
    "legacy": (".pth", _legacy),
    "tar": (".tar", lambda gadget: tar(pickle=called(gadget))),
}
