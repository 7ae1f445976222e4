"""How Python calls the function that makes a primitive, with the inputs and arguments that it had."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from modelglass.errors import CannotReproduceError
from modelglass.frameworks.mlx.inputs.sample_values import find_input, mlx_dtype, shape_list
from modelglass.report import Op

_NO_FUNCTION = "no function of mlx.core makes it by itself"


def write_call(op: Op) -> str:
    """Statements that leave what the primitive makes in `result`."""
    primitive = op.overload.removeprefix("mlx.")
    special = _SPECIAL.get(primitive)
    if special is not None:
        text = special(op)
    elif primitive in _CALLS:
        text = _CALLS[primitive].format_map(_CallParts(op))
    elif op.attributes:
        raise CannotReproduceError(_NO_FUNCTION)
    else:
        text = _function(op)
    return text if "result = " in text else f"result = {text}"


def _is_function(name: str) -> bool:
    """Whether a user can call it. A report may come from a file: only names MLX knows become code."""
    holder: Any = mx
    package, *parts = name.split(".")
    for part in parts:
        holder = getattr(holder, part, None) if part.isidentifier() else None
    return package == "mx" and bool(parts) and callable(holder) and not isinstance(holder, type)


class _CallParts(dict[str, str]):
    """What a call is put together from: inputs by role, attributes as Python, the function and the result."""

    def __init__(self, op: Op) -> None:
        self.inputs = [f"inputs[{place}]" for place in range(len(op.inputs))]
        super().__init__({key: repr(value) for key, value in op.attributes.items()})
        self.update((value.name, own) for value, own in zip(op.inputs, self.inputs, strict=True))
        self["inputs"] = f"[{', '.join(self.inputs)}]"
        if op.outputs and op.outputs[0].shape is not None:
            self["made"] = repr(shape_list(op.outputs[0]))
            self["made_dtype"] = mlx_dtype(op.outputs[0].dtype)
        if "dtype" in op.attributes:
            self["dtype"] = mlx_dtype(op.attributes["dtype"])
        if _is_function(op.name):
            self["name"] = op.name

    def __missing__(self, key: str) -> str:
        if key in _OPTIONAL:
            return "None"
        raise CannotReproduceError(f"MLX does not report its {key}")


_OPTIONAL = frozenset({"biases", "freqs", "mask_lhs", "mask_out", "mask_rhs", "scales", "sinks"})

_PACKED = "group_size={group_size}, bits={bits}, mode={mode}"
_WEIGHTED = "{x}, {w}, {scales}, {biases}"
_CHOSEN = "lhs_indices={lhs_indices}, rhs_indices={rhs_indices}"

# Calls in which inputs and attributes have places of their own; whatever has no attributes needs none.
_CALLS: Mapping[str, str] = {
    "AddMM": "mx.addmm({c}, {a}, {b}, alpha={alpha}, beta={beta})",
    "Arange": "mx.arange({start}, {stop}, {step}, dtype={made_dtype})",
    "ArgPartition": "mx.argpartition({a}, {kth}, axis={axis})",
    "ArgReduce": "{name}({a}, axis={axis}, keepdims=True)",
    "ArgSort": "mx.argsort({a}, axis={axis})",
    "AsStrided": "mx.as_strided({a}, {shape}, {strides}, {offset})",
    "AsType": "mx.astype({a}, {dtype})",
    "BitwiseBinary": "{name}({a}, {b})",
    "BlockMaskedMM": "mx.block_masked_mm({a}, {b}, {block_size}, {mask_out}, {mask_lhs}, {mask_rhs})",
    "Broadcast": "mx.broadcast_to({a}, {shape})",
    "Cholesky": "mx.linalg.cholesky({a}, upper={upper}, stream=mx.cpu)",
    "Concatenate": "mx.concatenate({inputs}, axis={axis})",
    "DynamicSlice": "mx.slice({a}, {start_indices}, {axes}, {slice_size})",
    "DynamicSliceUpdate": "mx.slice_update({a}, {update}, {start_indices}, {axes})",
    "Eig": "{name}({a}, stream=mx.cpu)",
    "Eigh": "{name}({a}, {uplo}, stream=mx.cpu)",
    "ExpandDims": "mx.expand_dims({a}, {axes})",
    "Flatten": "mx.flatten({a}, {start_axis}, {end_axis})",
    "Full": "mx.full({made}, {vals})",
    "GatherAxis": "mx.take_along_axis({a}, {indices}, axis={axis})",
    "GatherMM": f"mx.gather_mm({{a}}, {{b}}, {_CHOSEN})",
    "GatherQMM": f"mx.gather_qmm({_WEIGHTED}, {_CHOSEN}, transpose={{transpose}}, {_PACKED})",
    "Hadamard": "mx.hadamard_transform({a}, {scale})",
    "LayerNorm": "mx.fast.layer_norm({x}, {weight}, {bias}, {eps})",
    "Log": "{name}({a})",
    "LogSumExp": "mx.logsumexp({a}, axis=-1, keepdims=True)",
    "Partition": "mx.partition({a}, {kth}, axis={axis})",
    "QRF": "mx.linalg.qr({a}, stream=mx.cpu)",
    "QuantizedMatmul": f"mx.quantized_matmul({_WEIGHTED}, transpose={{transpose}}, {_PACKED})",
    "RMSNorm": "mx.fast.rms_norm({x}, {weight}, {eps})",
    "Reduce": "{name}({a}, axis={axes}, keepdims=True)",
    "Reshape": "mx.reshape({a}, {shape})",
    "SVD": "mx.linalg.svd({a}, compute_uv={compute_uv}, stream=mx.cpu)",
    "Scan": "{name}({a}, axis={axis}, reverse={reverse}, inclusive={inclusive})",
    "Softmax": "mx.softmax({a}, axis=-1, precise={precise})",
    "Sort": "mx.sort({a}, axis={axis})",
    "Split": "mx.split({a}, {indices}, axis={axis})",
    "Sqrt": "{name}({a})",
    "Squeeze": "mx.squeeze({a}, {axes})",
    "Transpose": "mx.transpose({a}, {axes})",
    "Unflatten": "mx.unflatten({a}, {axis}, {shape})",
    "View": "mx.view({a}, {dtype})",
}


def _function(op: Op, *rest: str) -> str:
    """A call of the primitive's own function."""
    if not _is_function(op.name):
        raise CannotReproduceError(_NO_FUNCTION)
    return f"{op.name}({', '.join((*_CallParts(op).inputs, *rest))})"


def _absolute(op: Op) -> str:
    """The primitive keeps complex numbers complex; the function makes them real afterwards."""
    return (
        f"{_function(op)}.astype({_CallParts(op)['made_dtype']})"
        if op.inputs[0].dtype == "complex64"
        else _function(op)
    )


def _convolution(op: Op) -> str:
    parts, padding = _CallParts(op), op.attributes.get("padding")
    if isinstance(padding, list) and padding and isinstance(padding[0], list):
        parts["padding"] = repr(tuple(padding))
    window = "stride={stride}, padding={padding}, kernel_dilation={dilation}, input_dilation={input_dilation}"
    call = f"mx.conv_general({{input}}, {{weight}}, {window}, groups={{groups}}, flip={{flip}})"
    return call.format_map(parts)


def _depends(op: Op) -> str:
    parts, count = _CallParts(op).inputs, len(op.outputs)
    return f"mx.depends([{', '.join(parts[:count])}], [{', '.join(parts[count:])}])"


def _equal(op: Op) -> str:
    if op.attributes.get("equal_nan"):
        raise CannotReproduceError("no function of mlx.core takes not-a-number for equal by itself")
    return _function(op)


def _transform(op: Op) -> str:
    axes, made = op.attributes.get("axes"), op.outputs[0].shape
    if not isinstance(axes, list) or made is None:
        raise CannotReproduceError("MLX does not report its axes")
    kind = f"{'i' * bool(op.attributes.get('inverse'))}{'r' * bool(op.attributes.get('real'))}fftn"
    sizes = f", s={[made[axis] for axis in axes]}" if kind == "irfftn" else ""
    return f"mx.fft.{kind}(inputs[0]{sizes}, axes={axes})"


def _indexed_axes(op: Op) -> tuple[list[int], list[int], int]:
    """The axes that are indexed, all axes with those in front, and the dimensions of the indices."""
    array, axes, first = find_input(op, "a"), op.attributes.get("axes"), find_input(op, "indices.0")
    if array is None or array.shape is None or not isinstance(axes, list):
        raise CannotReproduceError("MLX does not report its axes")
    rest = [axis for axis in range(len(array.shape)) if axis not in axes]
    return axes, [*axes, *rest], 0 if first is None else len(first.shape or ())


def _gather(op: Op) -> str:
    """Indexing, with the axes that are indexed in front, and each kept as one of size 1."""
    axes, order, depth = _indexed_axes(op)
    array, sizes = shape_list(op.inputs[0]), op.attributes["slice_sizes"]
    full = all(sizes[axis] == (1 if axis in axes else side) for axis, side in enumerate(array))
    if not axes or not full:
        raise CannotReproduceError("it takes a part of each slice, which no indexing does")
    indices = ", ".join(_CallParts(op).inputs[1:])
    source = "inputs[0]" if order == sorted(order) else f"mx.transpose(inputs[0], {order})"
    return f"mx.expand_dims({source}[{indices}], {sorted(depth + axis for axis in axes)})"


def _scatter(op: Op) -> str:
    axes, order, depth = _indexed_axes(op)
    array, updates = shape_list(op.inputs[0]), shape_list(op.inputs[-1])[depth:]
    full = all(updates[axis] == (1 if axis in axes else side) for axis, side in enumerate(array))
    if not axes or not full:
        raise CannotReproduceError("it writes a part of each slice, which no indexing by arrays does")
    *_, last = parts = _CallParts(op).inputs
    source = "inputs[0]" if order == sorted(order) else f"mx.transpose(inputs[0], {order})"
    values = f"mx.squeeze({last}, {sorted(depth + axis for axis in axes)})"
    back = sorted(range(len(order)), key=order.__getitem__)
    after = "" if source == "inputs[0]" else f"\nresult = mx.transpose(result, {back})"
    return _write_update(op, source, ", ".join(parts[1:-1]), values) + after


def _write_update(op: Op, source: str, place: str, values: str) -> str:
    """Write into an array, or combine with what is there."""
    way = op.attributes.get("reduce")
    if way == "set":
        return f"result = {source}\nresult[{place}] = {values}"
    if way not in ("add", "multiply", "maximum", "minimum"):
        raise CannotReproduceError("MLX does not report how it combines values")
    return f"result = {source}.at[{place}].{way}({values})"


def _slices(op: Op) -> str:
    bounds = [op.attributes.get(key) for key in ("start", "stop", "strides")]
    if not all(isinstance(each, list) for each in bounds):
        raise CannotReproduceError("MLX does not report where its slice is")
    ways = zip(*bounds, strict=True)  # type: ignore[arg-type]
    return ", ".join(f"{int(start)}:{int(stop)}:{int(step)}" for start, stop, step in ways) or "..."


def _scatter_along(op: Op) -> str:
    if op.attributes.get("reduce") != "set":
        raise CannotReproduceError("no function of mlx.core adds along an axis by itself")
    return "mx.put_along_axis({a}, {indices}, {updates}, axis={axis})".format_map(_CallParts(op))


def _masked_scatter(op: Op) -> str:
    return "result = inputs[0]\nresult[inputs[1]] = mx.flatten(inputs[2])[: mx.sum(inputs[1]).item()]"


def _pad(op: Op) -> str:
    axes, low, high = (op.attributes.get(key) for key in ("axes", "low_pad", "high_pad"))
    if axes is None or low is None or high is None:
        raise CannotReproduceError("MLX does not report where it pads")
    widths = [(0, 0)] * len(shape_list(op.inputs[0]))
    for axis, before, after in zip(axes, low, high, strict=True):
        widths[axis] = (before, after)
    return f"mx.pad(inputs[0], {widths}, constant_values=inputs[1])"


def _quantize(op: Op) -> str:
    packed = _PACKED.format_map(_CallParts(op))
    if op.attributes.get("dequantize"):
        return f"mx.dequantize({{w}}, {{scales}}, {{biases}}, {packed})".format_map(_CallParts(op))
    return f"mx.quantize(inputs[0], {packed})"


def _random(op: Op) -> str:
    shape = op.attributes.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or shape[1] != 2 or op.attributes.get("width") != 4:
        raise CannotReproduceError("no function of mlx.core makes random bits by itself")
    return f"mx.random.split(inputs[0], {int(shape[0])})"


def _rope(op: Op) -> str:
    if not op.attributes.get("forward", True):
        raise CannotReproduceError("no function of mlx.core turns positions back by itself")
    parts = _CallParts(op)
    if "freqs" in parts:
        parts["base"] = "None"
    call = "mx.fast.rope({a}, {dims}, traditional={traditional}, base={base}, scale={scale}, offset={offset}"
    return f"{call}, freqs={{freqs}})".format_map(parts)


def _attention(op: Op) -> str:
    if len(op.outputs) != 1:
        raise CannotReproduceError("no function of mlx.core returns what its gradient needs")
    parts = _CallParts(op)
    parts["mask"] = "'causal'" if op.attributes.get("do_causal") else parts.get("mask", "None")
    call = "mx.fast.scaled_dot_product_attention({q}, {k}, {v}, scale={scale}, mask={mask}, sinks={sinks})"
    return call.format_map(parts)


def _inverse(op: Op) -> list[str]:
    return [f"upper={bool(op.attributes.get('upper'))}"] if op.attributes.get("tri") else []


def _refuse(op: Op) -> str:
    raise CannotReproduceError("it needs a file, a function or a process that is not in the report")


_SPECIAL: Mapping[str, Callable[[Op], str]] = {
    "Abs": _absolute,
    "Convolution": _convolution,
    "CustomKernel": _refuse,
    "CustomTransforms": _refuse,
    "Depends": _depends,
    "Equal": _equal,
    "FFT": _transform,
    "Gather": _gather,
    "Inverse": lambda op: _function(op, *_inverse(op), "stream=mx.cpu"),
    "Load": _refuse,
    "MaskedScatter": _masked_scatter,
    "Pad": _pad,
    "Quantize": _quantize,
    "RandomBits": _random,
    "Recv": _refuse,
    "RoPE": _rope,
    "ScaledDotProductAttention": _attention,
    "Scatter": _scatter,
    "ScatterAxis": _scatter_along,
    "SearchSorted": lambda op: _function(op, f"side={'right' if op.attributes.get('right') else 'left'!r}"),
    "Send": _refuse,
    "Slice": lambda op: f"inputs[0][{_slices(op)}]",
    "SliceUpdate": lambda op: _write_update(op, "inputs[0]", _slices(op), "inputs[1]"),
}
