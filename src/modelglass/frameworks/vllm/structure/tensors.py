"""Logical meaning of the tensors of vLLM modules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import nn

from modelglass.frameworks.shared.describe import join_path
from modelglass.frameworks.torch.describe import dtype_name
from modelglass.frameworks.vllm.structure import experts, layers, loaders, quantization
from modelglass.frameworks.vllm.structure.stored_tensor import StoredTensor, find_integer, orient
from modelglass.report import Note, Packing, Severity, Shard, Tensor
from modelglass.report.dtypes import nbytes_of

UNCLEAR = "unclear-shard"


@dataclass
class TensorReader:
    """What is known so far. `tensors` are all there are by name, changed as more becomes known of them."""

    native: nn.Module
    tensors: dict[str, Tensor]
    shards: dict[str, Shard] = field(default_factory=dict)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)  # tensors that no parameter shows, by module
    places: dict[str, list[str]] = field(default_factory=dict)  # of notes, by code
    memory: dict[Any, list[str]] = field(default_factory=dict)
    ranks: int = 1  # that divide tensors

    def __post_init__(self) -> None:
        sizes = (find_integer(module, "tp_size") for module in self.native.modules())
        self.ranks = max((size for size in sizes if size is not None), default=1)

    def add(self, path: str, module: nn.Module) -> None:
        """Read one module; those around it were read before."""
        self.modules[path] = module
        held = _tensors_of(module)
        own = {key: join_path(path, key) for key in held}
        facts, prefixes = self._layer(path, module)
        if quantization.quantizes(module):
            facts |= self._quantized(module, own, facts, prefixes)
        for key, tensor in held.items():
            self._share_memory(own[key], tensor)
            if self.tensors[own[key]].kind == "buffer":
                continue
            if key in facts:
                self._apply(own[key], module, facts[key])
            elif key in module._parameters:
                self._other(own[key], key, module, tensor)
        for prefix in prefixes:
            weights = [key for key in held if key in facts and key.startswith(prefix)]
            if all(key.endswith("bias") for key in weights):
                self._absent(join_path(path, prefix + "weight"), module, facts[prefix + "weight"], own)

    def join_views(self) -> None:
        """Several views of the same elements are one memory, which is a parameter's if one of them is."""
        for names in self.memory.values():
            first = min(names, key=lambda name: self.tensors[name].kind == "buffer")
            for name in names:
                storage = self.tensors[first].storage
                self.tensors[name] = replace(self.tensors[name], storage=storage)

    def hides_modules(self, place: str) -> bool:
        """Whether the list, tuple or dict of that path holds parameters that are nowhere in the tree."""
        path, _, key = place.rpartition(".")
        value: Any = getattr(self.modules.get(path), key, ())
        items = value.values() if isinstance(value, dict) else value
        known = set(map(id, self.native.parameters()))
        hidden = (item for item in items if isinstance(item, nn.Module))
        return any(id(parameter) not in known for item in hidden for parameter in item.parameters())

    def notes(self) -> Iterator[Note]:
        """What was odd, each oddity once."""
        for code, severity, text in _NOTES:
            if code in self.places:
                yield Note(code=code, severity=severity, text=text, where=tuple(self.places[code]))

    def _note(self, code: str, name: str) -> None:
        self.places.setdefault(code, []).append(name)

    def _layer(self, path: str, module: nn.Module) -> tuple[dict[str, StoredTensor], tuple[str, ...]]:
        """What a layer's plain tensors stand for, and how the names of each of its weights begin."""
        if _is_left_out(module):
            return {}, ()
        if experts.is_experts(module):
            return dict(experts.experts(module)), (experts.FIRST, experts.SECOND)
        if layers.is_embedding(module):
            return layers.embedding(module), ("",)
        if layers.is_linear(module):
            return layers.linear(module, lambda count: self._names(path, count)), ("",)
        return {}, ()

    def _quantized(
        self,
        module: nn.Module,
        own: Mapping[str, str],
        plain: Mapping[str, StoredTensor],
        prefixes: Sequence[str],
    ) -> dict[str, StoredTensor]:
        """What the stored weights of a quantized layer stand for; what goes with them becomes buffers."""
        tensors = {key: self.tensors[name] for key, name in own.items() if not key.endswith("bias")}
        sides = {key for key in tensors if quantization.is_side(key)}
        facts: dict[str, StoredTensor] = {}
        for prefix in prefixes:
            known = quantization.find_weight(module, tensors, plain[prefix + "weight"], prefix)
            if known is not None:
                facts[known[0]] = known[1]
                sides.update(known[1].sides)
        if experts.is_experts(module):
            sides.update(key for key in experts.spare(module) if key in own)
        for key in sides:
            self.tensors[own[key]] = replace(self.tensors[own[key]], kind="buffer", packing=None)
        return facts

    def _apply(self, name: str, module: nn.Module, stored: StoredTensor) -> None:
        """Replace a tensor by its layer's description."""
        tensor = self.tensors[name]
        if tensor.shape is None:
            return
        numel = tensor.numel or 0
        if stored.scheme is not None or (numel == 0 and stored.numel):
            self._pack(tensor, module, stored)
        elif (turned := orient(stored, tensor.shape)) is not None:
            stored = turned
        elif numel == stored.numel:
            packing = Packing(scheme="prepacked", logical_shape=stored.shape, nbytes=tensor.nbytes or 0)
            self.tensors[name] = replace(tensor, packing=packing)
        elif numel > stored.numel:
            stored = _add_padding(stored, numel - stored.numel)
        else:
            self._note("unmatched-weight", name)
            return
        if stored.shard is not None:
            self.shards[name] = stored.shard
        if numel and stored.scheme is None and name.endswith("weight") and _kernel(module)[0] is not None:
            self._note("packed-copy", name)

    def _pack(self, tensor: Tensor, module: nn.Module, stored: StoredTensor) -> None:
        """A weight whose elements are elsewhere, or are not the weights."""
        path = tensor.name.rpartition(".")[0]
        sides = [self.tensors[join_path(path, key)] for key in stored.sides]
        nbytes, scheme, dtype = tensor.nbytes or 0, stored.scheme, tensor.dtype
        if tensor.numel == 0:
            library, kept = _kernel(module)
            if scheme is None:  # what was put in its place may be of any type
                scheme, dtype = library or "packed", _type_of(module, dtype)
            nbytes = nbytes_of(dtype, stored.numel) or 0 if kept is None else kept
            self._note("packed-weights", tensor.name)
        packing = Packing(
            scheme=scheme or "packed",
            logical_shape=stored.shape,
            nbytes=nbytes,
            side_nbytes=sum({side.storage: side.nbytes or 0 for side in sides}.values()),
        )
        kind: Literal["parameter", "packed"] = "parameter" if tensor.numel == stored.numel else "packed"
        self.tensors[tensor.name] = replace(tensor, kind=kind, dtype=dtype, packing=packing)

    def _absent(self, name: str, module: nn.Module, stored: StoredTensor, own: Mapping[str, str]) -> None:
        """A weight that its layer no longer has, because what multiplies with it took it away."""
        if getattr(module, "quant_method", None) is None or any(True for _ in _parameters_below(module)):
            return  # a layer around another one
        path = name.rpartition(".")[0]
        self.added.setdefault(path, []).append(name)
        known = quantization.find_hidden_scheme(module) if quantization.quantizes(module) else None
        if known is None:
            dtype = _type_of(module, "float32")
            self._note("empty-parameter", name)
            self.tensors[name] = Tensor(name=name, kind="packed", shape=None, dtype=dtype, storage=name)
            return
        scheme, dtype = known
        sides = tuple(key for key in own if not key.endswith("bias"))
        empty = Tensor(name=name, kind="packed", shape=(0,), dtype=dtype, storage=name, trainable=False)
        self.tensors[name] = empty
        self._pack(empty, module, replace(stored, scheme=scheme, sides=sides))
        if stored.shard is not None:
            self.shards[name] = stored.shard

    def _other(self, name: str, key: str, module: nn.Module, parameter: torch.Tensor) -> None:
        """A parameter that no rule for a layer knows."""
        if key.startswith("W_") and getattr(module, "kv_b_proj", None) is not None:
            self.tensors[name] = replace(self.tensors[name], kind="buffer")
            self._note("absorbed-weights", name)
            return
        if parameter.numel() == 0:
            self._note("empty-parameter", name)
            self.tensors[name] = replace(self.tensors[name], shape=None)
            return
        stored, certain = loaders.find_division(module, parameter, self.ranks)
        if stored is not None and stored.shard is not None:
            self.shards[name] = stored.shard
        elif not certain:
            self._note(UNCLEAR, name)

    def _names(self, path: str, count: int) -> Sequence[str | None]:
        """What checkpoints call the pieces of a fused layer, from the nearest model around it."""
        around, _, last = path.rpartition(".")
        while count > 1:
            mapping = getattr(self.modules.get(around), "packed_modules_mapping", None)
            names = mapping.get(last) if isinstance(mapping, Mapping) else None
            if isinstance(names, (list, tuple)) and len(names) == count:
                return [str(name) for name in names]
            if not around:
                break
            around = around.rpartition(".")[0]
        return [None] * count

    def _share_memory(self, name: str, tensor: torch.Tensor) -> None:
        """Remember where a tensor lies, if that can be compared."""
        if tensor.layout is not torch.strided or not tensor.numel() or not tensor.is_contiguous():
            return
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.dtype, tensor.numel())
        self.memory.setdefault(key, []).append(name)


def _is_left_out(module: nn.Module) -> bool:
    """Whether this only stands where a layer was that the model does without, and answers in its name."""
    return "stage_name" in vars(module) and not _tensors_of(module)


def _tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    both = (*module._parameters.items(), *module._buffers.items())
    return {key: tensor for key, tensor in both if tensor is not None}


def _parameters_below(module: nn.Module) -> Iterator[torch.Tensor]:
    for child in module.children():
        yield from child.parameters()


def _add_padding(stored: StoredTensor, more: int) -> StoredTensor:
    """The same with that much padding more, which a kernel wanted."""
    shard = stored.shard or Shard(whole=stored.shape)
    return replace(stored, shard=replace(shard, padding=shard.padding + more))


def _type_of(module: nn.Module, otherwise: str) -> str:
    dtype = getattr(module, "params_dtype", None)
    return dtype_name(dtype) if isinstance(dtype, torch.dtype) else otherwise


def _kernel(module: nn.Module) -> tuple[str | None, int | None]:
    """What keeps a layer's weight in a form of its own, and in how many bytes, where that shows."""
    kernel = getattr(module, "cpu_linear", None)
    cells = getattr(kernel, "__closure__", None) or ()
    names = getattr(getattr(kernel, "__code__", None), "co_freevars", ())
    remembered = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    if "handler" in remembered:
        return "onednn", None
    kept = [value for value in remembered.values() if isinstance(value, torch.Tensor)]
    return ("prepacked", kept[0].numel() * kept[0].element_size()) if kept else (None, None)


_NOTES: tuple[tuple[str, Severity, str], ...] = (
    (
        "packed-weights",
        "info",
        "the engine packed these weights for its kernels and emptied their parameters; they are counted as "
        "their layers describe them, and their bytes as if packing added none",
    ),
    (
        "packed-copy",
        "info",
        "the engine's kernels keep a packed copy of these weights besides, which no tensor shows",
    ),
    (
        "absorbed-weights",
        "info",
        "the engine made these from kv_b_proj for its attention: additional memory, not additional weights",
    ),
    (
        "empty-parameter",
        "warning",
        "these parameters are empty, and their contents are not known: totals do not include them",
    ),
    (
        "unmatched-weight",
        "warning",
        "these weights have fewer elements than their layers describe; they are counted as they are",
    ),
    (
        UNCLEAR,
        "warning",
        "ranks divide these parameters along an unknown dimension; their whole shapes are not known",
    ),
)
