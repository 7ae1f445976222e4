"""The module tree and its tensors, read without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.shared.describe import constructor_names, join_path, settings_of, type_name
from modelglass.frameworks.torch.describe import dtype_name, json_safe, name_setting, shape_of
from modelglass.frameworks.torch.privates import DisableTorchFunctionSubclass
from modelglass.frameworks.torch.structure.packing import EXPANDED, find_hidden_weights, find_packing
from modelglass.frameworks.torch.structure.sharing import find_owners, lies_within
from modelglass.report import Json, Model, Module, Note, Tensor, TensorKind
from modelglass.undo import undoing

_PLAIN = (torch.dtype, torch.device)
_MODULE_INTERNALS = frozenset(vars(nn.Module()))


def read(native: nn.Module) -> tuple[Model, tuple[Note, ...]]:
    """The structure of a model: every module once, every tensor by each of its names."""
    tree = _Tree()
    with DisableTorchFunctionSubclass():  # parameters may have ideas of their own
        for path, module in walk(native, tree.aliases):
            tree.add(path, module)
        tensors = tuple(tree.tie_tensors())
    model = Model(
        name=_class_name(native),
        source="torch",
        modules=tuple(tree.modules()),
        tensors=tensors,
    )
    return model, tuple(tree.notes())


def walk(native: nn.Module, aliases: dict[str, list[str]] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """Each module once, parents before children, in definition order; further paths go to `aliases`."""
    first: dict[int, str] = {}
    stack: list[tuple[str, nn.Module]] = [("", native)]
    while stack:
        path, module = stack.pop()
        if id(module) in first:
            if aliases is not None:
                aliases.setdefault(first[id(module)], []).append(path)
            continue
        first[id(module)] = path
        yield path, module
        children = [
            (join_path(path, key), child) for key, child in module._modules.items() if child is not None
        ]
        stack.extend(reversed(children))


def name_tensors(native: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor by each of its names, as they stand in the structure."""
    for path, module in walk(native):
        for key, tensor in chain(_own_tensors(module).items(), find_hidden_weights(module)):
            yield join_path(path, key), tensor


def find_non_persistent(native: nn.Module) -> frozenset[str]:
    """The names of buffers that no `state_dict` has, because they are not persistent."""
    return frozenset(
        join_path(path, key)
        for path, module in walk(native)
        for key in getattr(module, "_non_persistent_buffers_set", ())  # TorchScript knows of none
    )


@contextmanager
def in_training(native: nn.Module) -> Iterator[None]:
    """The model in training mode, as its own `train()` has it; each module is as it was afterwards."""
    with undoing() as log:
        for _, module in walk(native):
            if hasattr(module, "training"):  # a frozen script has no mode
                log.record(setattr, module, "training", module.training)
        with suppress(NotImplementedError):  # what was exported has one mode
            native.train()
        yield


def _own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    held = chain(module._parameters.items(), module._buffers.items())
    return {key: tensor for key, tensor in held if tensor is not None}


@dataclass
class _Tree:
    """What has been read so far."""

    natives: dict[str, nn.Module] = field(default_factory=dict)
    children: dict[str, list[str]] = field(default_factory=dict)
    own_tensors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    shared_memory: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)  # only in part
    hidden: list[str] = field(default_factory=list)
    unregistered: list[str] = field(default_factory=list)
    originals: list[torch.Tensor] = field(default_factory=list)  # of the tensors, in the same order

    def add(self, path: str, module: nn.Module) -> None:
        first = len(self.tensors)
        self._add_tensors(path, module)
        self.natives[path] = module
        self.children[path] = []
        self.own_tensors[path] = tuple(tensor.name for tensor in self.tensors[first:])
        if path:
            self.children[path.rpartition(".")[0]].append(path)
        self.unregistered.extend(join_path(path, key) for key in _unregistered_modules(module))

    def modules(self) -> Iterator[Module]:
        for path, native in self.natives.items():
            yield Module(
                path=path,
                type=_class_name(native),
                qualified_type=type_name(type(native)),
                config=config_of(native),
                training=getattr(native, "training", None),  # frozen TorchScript does not have it
                tensors=self.own_tensors[path],
                children=tuple(self.children[path]),
                aliases=tuple(self.aliases.get(path, ())),
            )

    def _add_tensors(self, path: str, module: nn.Module) -> None:
        own = _own_tensors(module)
        parameters = {key for key, tensor in module._parameters.items() if tensor is not None}
        for key, tensor in own.items():
            kind: TensorKind = "parameter" if key in parameters else "buffer"
            self._add_tensor(join_path(path, key), key, tensor, kind, own)
        for key, tensor in find_hidden_weights(module):
            name = join_path(path, key)
            self.hidden.append(name)
            self._add_tensor(name, key, tensor, "packed", {})

    def _add_tensor(
        self,
        name: str,
        key: str,
        tensor: torch.Tensor,
        kind: TensorKind,
        own: Mapping[str, torch.Tensor],
    ) -> None:
        lazy = is_lazy(tensor)
        packing = None if lazy else find_packing(key, tensor, own)
        if packing is not None and packing.scheme != EXPANDED and kind == "buffer":
            kind = "packed"
        self.originals.append(tensor)
        self.tensors.append(
            Tensor(
                name=name,
                kind=kind,
                # A nested tensor does not have a single shape; what it stores has.
                shape=None if lazy else shape_of(tensor.values() if tensor.is_nested else tensor),
                dtype=dtype_name(tensor.dtype),
                storage=name,
                trainable=tensor.requires_grad,
                device=str(tensor.device),
                packing=packing,
                nonzero=_count_unpruned(key, own),
            )
        )

    def tie_tensors(self) -> Iterator[Tensor]:
        """The tensors, those that share memory with the storage of the one that counts it."""
        for at, owner in enumerate(find_owners(self.originals)):
            tensor, original = self.tensors[at], self.originals[at]
            if owner == at:
                yield tensor
                continue
            if not lies_within(original, self.originals[owner]):
                self.overlapping.append(tensor.name)
            elif (
                tensor.kind == "parameter"
                and isinstance(original, nn.Parameter)
                and original is not self.originals[owner]
            ):
                self.shared_memory.append(tensor.name)
            yield replace(tensor, storage=self.tensors[owner].name)

    def notes(self) -> Iterator[Note]:
        if self.hidden:
            yield Note(
                code="hidden-weights",
                text="torch keeps these weights in packed objects that parameters() does not list; "
                "they are counted here",
                where=tuple(self.hidden),
            )
        if self.shared_memory:
            yield Note(
                code="shared-memory",
                text="these parameters are separate objects in the memory of another one; "
                "they are counted once here and twice by parameters()",
                where=tuple(self.shared_memory),
            )
        if self.overlapping:
            yield Note(
                code="overlapping-memory",
                severity="warning",
                text="these tensors share only a part of another one's memory, or it cannot be seen how "
                "much; they are not counted, so that counts are lower bounds",
                where=tuple(self.overlapping),
            )
        if self.unregistered:
            yield Note(
                code="unregistered-module",
                severity="warning",
                text="modules held in a plain list, tuple or dict: their parameters are invisible to "
                "parameters(), state_dict() and .to(); use nn.ModuleList or nn.ModuleDict",
                where=tuple(self.unregistered),
            )


def _class_name(module: nn.Module) -> str:
    return str(getattr(module, "original_name", None) or type(module).__name__)


def _count_unpruned(key: str, own: Mapping[str, torch.Tensor]) -> int | None:
    """How many weights a pruning mask lets through (`weight_orig` with `weight_mask` beside it)."""
    mask = own.get(key.removesuffix("_orig") + "_mask") if key.endswith("_orig") else None
    if mask is None or mask.device.type == "meta":
        return None
    return int(torch.count_nonzero(mask))


def _unregistered_modules(module: nn.Module) -> Iterator[str]:
    if isinstance(module, torch.jit.ScriptModule):
        return
    registered = set(map(id, module._modules.values()))
    for key, value in vars(module).items():
        if key in _MODULE_INTERNALS or not isinstance(value, (list, tuple, dict)):
            continue
        items = value.values() if isinstance(value, dict) else value
        if any(isinstance(item, nn.Module) and id(item) not in registered for item in items):
            yield key


def config_of(module: nn.Module) -> Mapping[str, Json]:
    """Constructor-style settings of any module: its plain attributes, and what its constructor names.

    An argument that became a parameter (a `bias`) is recorded as whether it is present.
    """
    if isinstance(module, torch.jit.ScriptModule):
        known = vars(module).get("_concrete_type")  # frozen ones have none
        constants = known.get_constants() if known is not None else {}
        return {key: json_safe(value) for key, value in constants.items()}
    wanted = constructor_names(type(module))  # type: ignore[arg-type]
    own = (
        (key, value) for key, value in vars(module).items() if not key.startswith("_") and key != "training"
    )
    config = settings_of(own, wanted, _PLAIN, torch.Tensor, name_setting)
    for key in wanted:
        if key in module._parameters:
            config[key] = module._parameters[key] is not None
    return config
