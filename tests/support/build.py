"""Nouns with everything filled in that a test does not care about."""

from __future__ import annotations

from typing import Any

from modelglass.report import Call, Kernel, Model, Module, Op, Tensor, Value


def tensor(name: str, shape: tuple[int, ...] | None = (2, 3), **more: Any) -> Tensor:
    defaults = {"kind": "parameter", "dtype": "float32", "storage": name, "trainable": True}
    return Tensor(name=name, shape=shape, **{**defaults, **more})


def module(path: str = "", type: str = "Block", **more: Any) -> Module:
    return Module(path=path, type=type, qualified_type=f"tests.{type}", **more)


def model(*tensors: Tensor, modules: tuple[Module, ...] | None = None, **more: Any) -> Model:
    """A model of one root module that holds the tensors, unless modules are given."""
    root = module("", tensors=tuple(t.name for t in tensors))
    return Model(name="Net", source="torch", modules=modules or (root,), tensors=tensors, **more)


def value(name: str, *shape: int, dtype: str = "float32", **more: Any) -> Value:
    return Value(name=name, shape=shape, dtype=dtype, **more)


def kernel(name: str, *inputs: Value, output: tuple[int, ...] = (), **attributes: Any) -> Kernel:
    return Kernel(name=name, attributes=attributes, inputs=inputs, outputs=(value("", *output),))


def op(name: str = "torch.mm", *kernels: Kernel, **more: Any) -> Op:
    defaults = {
        "index": 0,
        "overload": "aten.mm.default",
        "module": "",
        "call": 0,
        "phase": "forward",
        "attributes": {},
        "inputs": (),
        "outputs": (),
    }
    return Op(name=name, kernels=kernels, **{**defaults, **more})


def call(module: str = "", **more: Any) -> Call:
    defaults = {"index": 0, "parent": None, "phase": "forward", "inputs": (), "outputs": ()}
    return Call(module=module, **{**defaults, **more})
