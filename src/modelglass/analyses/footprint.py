"""What weights take as they are stored, what the cache of a context adds, and what of it fits into a device.

Layers of a GGUF file go to a device as llama.cpp has it: the last ones first, each with its cache, then the
output layer; the table of tokens that a model begins with stays on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from modelglass.report.architecture import Architecture
from modelglass.report.footprint import Footprint, FootprintAt, FootprintPart
from modelglass.report.model import Tensor
from modelglass.report.report import Note, Report

BATCH = 512  # tokens that llama.cpp computes at once unless told otherwise
SHORTEST, MOST_CONTEXT = 2048, 1 << 20
_LAYER = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.|\.experts\.")
_INPUT = re.compile(r"(?:token_embd|position_embd|token_types|token_embd_norm|per_layer_token_embd)\.")


@dataclass(frozen=True, slots=True)
class _Weights:
    """Bytes of a model by where they can be."""

    layers: list[int] = field(default_factory=list)  # without experts that stay on the host
    output: int = 0
    host: int = 0  # the table of tokens, and experts
    divided: bool = False  # by layers

    @property
    def device(self) -> int:
        """What a device holds that holds all that it is to hold."""
        return sum(self.layers) + self.output


def footprint(
    report: Report,
    *,
    device_nbytes: int | None = None,
    contexts: Sequence[int] = (),
    experts_on_host: bool = False,
    components: Sequence[str] = (),
) -> Footprint:
    """What the files of a report take. `components` are parts of a pipeline, which have no cache together."""
    checkpoint = report.checkpoint
    found = None if checkpoint is None or components else checkpoint.architecture
    tensors = _stored(report)
    weights = _divided(tensors, experts_on_host=experts_on_host)
    asked = list(_lengths(found, contexts))
    rows = tuple(_at(weights, found, context, device_nbytes) for context in asked)
    return Footprint(
        name=report.model.name,
        source=report.model.source,
        weight_nbytes=sum(each.nbytes or 0 for each in tensors),
        contexts=rows,
        parts=tuple(_parts(tensors, weights, rows[0], components)),
        layers=len(weights.layers) if weights.divided else None,
        experts_on_host=experts_on_host,
        device_nbytes=device_nbytes,
        cache_dtype=None if found is None else found.kv_cache_dtype,
        context_length=None if found is None else found.context_length,
        largest_context=_largest(weights, found, device_nbytes),
        scores_nbytes=_scores_nbytes(tensors, found) if weights.divided else None,
        excludes=(
            "compute buffers of the engine" if weights.divided else "activations",
            "the device's context",
        ),
        notes=(*_notes(found, contexts, components, report), *report.notes),
    )


def _stored(report: Report) -> list[Tensor]:
    """Each tensor once, however many names it has."""
    tied = {} if report.counts is None else report.counts.tied
    return [tensor for tensor in report.model.tensors if tensor.name not in tied]


def _divided(tensors: Sequence[Tensor], *, experts_on_host: bool) -> _Weights:
    layers: dict[int, int] = {}
    output = host = table = 0
    for tensor in tensors:
        nbytes, layer = tensor.nbytes or 0, _LAYER.match(tensor.name)
        if layer is not None:
            layers.setdefault(int(layer[1]), 0)
        if experts_on_host and _EXPERTS.search(tensor.name):
            host += nbytes
        elif layer is not None:
            layers[int(layer[1])] += nbytes
        elif _INPUT.match(tensor.name):
            host += nbytes
            table += nbytes if tensor.name == "token_embd.weight" else 0
        else:
            output += nbytes
    if layers and not any(tensor.name == "output.weight" for tensor in tensors):
        output += table  # it is both, and each place has its copy
    if not layers:
        return _Weights([], output + (0 if experts_on_host else host), host if experts_on_host else 0)
    return _Weights([layers[number] for number in sorted(layers)], output, host, divided=True)


def _lengths(found: Architecture | None, asked: Sequence[int]) -> Iterator[int | None]:
    """The lengths to look at: those asked about, or the model's own and shorter ones."""
    if found is None or found.kv_cache_nbytes(1) is None:
        yield None
    elif asked:
        yield from asked
    else:
        longest = found.context_length or 2 * SHORTEST
        yield longest
        length = SHORTEST
        while length < longest:
            yield length
            length *= 2


def _at(weights: _Weights, found: Architecture | None, context: int | None, room: int | None) -> FootprintAt:
    cache = None if found is None or context is None else found.kv_cache_nbytes(context)
    needed = weights.device + (cache or 0)
    if room is None:
        return FootprintAt(context=context, cache_nbytes=cache, nbytes=needed)
    fits = needed <= room
    if not weights.divided:
        return FootprintAt(context=context, cache_nbytes=cache, nbytes=needed, fits=fits)
    count = len(weights.layers)
    shares = _shares(cache or 0, count)
    layers, used = 0, 0
    for nbytes in reversed([one + share for one, share in zip(weights.layers, shares, strict=True)]):
        if used + nbytes > room:
            break
        layers, used = layers + 1, used + nbytes
    used = needed if fits else used
    whole = weights.device + weights.host + (cache or 0)
    return FootprintAt(
        context=context,
        cache_nbytes=cache,
        nbytes=needed,
        fits=fits,
        layers=layers,
        output=fits,
        device_nbytes=used,
        host_nbytes=whole - used,
    )


def _shares(cache: int, layers: int) -> list[int]:
    """The cache of each layer; together they are the whole."""
    each, more = divmod(cache, layers)
    return [each + (number < more) for number in range(layers)]


def _largest(weights: _Weights, found: Architecture | None, room: int | None) -> int | None:
    """The longest context with which all fits, no longer than the model was made for."""
    if room is None or found is None or found.kv_cache_nbytes(1) is None or weights.device > room:
        return None
    low, high = 0, found.context_length or MOST_CONTEXT
    while low < high:
        middle = (low + high + 1) // 2
        if weights.device + (found.kv_cache_nbytes(middle) or 0) <= room:
            low = middle
        else:
            high = middle - 1
    return low or None


def _parts(
    tensors: Sequence[Tensor], weights: _Weights, at: FootprintAt, components: Sequence[str]
) -> Iterator[FootprintPart]:
    if components:
        for name in components:
            nbytes = sum(each.nbytes or 0 for each in tensors if each.name.startswith(f"{name}."))
            yield FootprintPart(name=name, nbytes=nbytes)
        return
    if not weights.divided:
        return
    count, here = len(weights.layers), at.layers
    first = count - (here or 0)
    if first:
        yield _part(_layers_text(0, first), sum(weights.layers[:first]), None if here is None else 0)
    if here:
        nbytes = sum(weights.layers[first:])
        yield _part(_layers_text(first, count), nbytes, nbytes)
    yield _part("output layer", weights.output, None if here is None else weights.output * bool(at.output))
    experts = weights.host - sum(each.nbytes or 0 for each in tensors if _INPUT.match(each.name))
    if experts:
        yield _part("experts", experts, None if here is None else 0)
    yield _part("token embedding", weights.host - experts, None if here is None else 0)


def _layers_text(first: int, end: int) -> str:
    return f"layers {first} to {end - 1}" if end - first > 1 else f"layer {first}"


def _part(name: str, nbytes: int, device_nbytes: int | None) -> FootprintPart:
    return FootprintPart(name=name, nbytes=nbytes, device_nbytes=device_nbytes)


def _scores_nbytes(tensors: Sequence[Tensor], found: Architecture | None) -> int | None:
    """The float32 scores of a batch: most of what llama.cpp computes in; None: no vocabulary is known."""
    table = next((each for each in tensors if each.name == "token_embd.weight"), None)
    shape = None if table is None else table.shape if table.packing is None else table.packing.logical_shape
    words = (found.vocab_size if found is not None else None) or (shape[0] if shape else None)
    return None if words is None else 4 * BATCH * words


def _notes(
    found: Architecture | None, contexts: Sequence[int], components: Sequence[str], report: Report
) -> Iterator[Note]:
    if components:
        if contexts:
            text = "the parts of a pipeline have no cache together: the context changes nothing"
            yield Note(code="cache-unknown", text=text, severity="warning")
    elif found is None:
        text = "nothing says how the model is built (no config.json beside it), so its cache is unknown"
        yield Note(code="cache-unknown", text=text, severity="warning" if contexts else "info")
    elif found.kv_cache_nbytes(1) is None:
        why = found.kv_cache_reason or "the configuration does not say enough"
        text = f"the size of the KV cache is unknown: {why}"
        yield Note(code="cache-unknown", text=text, severity="warning" if contexts else "info")
    beyond = [each for each in contexts if found and found.context_length and each > found.context_length]
    if beyond and found is not None:
        text = f"the model was made for {found.context_length:,} tokens; {beyond[0]:,} are more"
        yield Note(code="beyond-context", text=text, severity="warning")
