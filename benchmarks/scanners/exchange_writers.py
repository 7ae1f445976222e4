"""Formats made to pass models on: safetensors, GGUF, ONNX, Keras."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from genuine import network  # of the tests

# Two that are published with models: loops, macros, filters, errors of their own.
_CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TOOLS = """{%- macro described(tool) -%}
{{- tool.function.name }}: {{ tool.function.description | trim }}
{{ tool.function.parameters | tojson(indent=2) }}
{%- endmacro -%}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- endif %}
{%- endif %}
{%- set ns = namespace(first=true, last_query_index=messages|length - 1) %}
{%- for tool in tools or [] %}{{ described(tool) }}
{%- endfor %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not
        (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.last_query_index = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.tool_calls is defined %}
        {%- for tool_call in message.tool_calls %}
            {{- '{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
        {%- endfor %}
    {%- elif '</think>' in message.content %}
        {{- message.content.split('</think>')[-1].lstrip('\\n') }}
    {%- else %}
        {{- '[INST] ' + message['content'] | trim + ' [/INST]' + eos_token }}
    {%- endif %}
{%- endfor %}"""
TEMPLATES = {"chatml": _CHATML, "tools": _TOOLS}


def safetensors_files(folder: Path) -> None:
    from safetensors.numpy import save_file as save_arrays
    from safetensors.torch import save_file, save_model

    state = network().state_dict()
    save_file(state, folder / "plain.safetensors")
    save_file(state, folder / "metadata.safetensors", metadata={"format": "pt", "author": "somebody"})
    training = {
        "ss_network_module": "networks.lora",
        "modelspec.title": "a style",
        "ss_tag_frequency": '{"a": 1}',
    }
    save_file({"lora_up.weight": torch.ones(4, 2)}, folder / "lora.safetensors", metadata=training)
    dtypes = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.bool, torch.uint16)
    save_file({str(each): torch.zeros(3, dtype=each) for each in dtypes}, folder / "dtypes.safetensors")
    save_file({}, folder / "empty.safetensors")
    save_file({"scalar": torch.tensor(1.0), "none": torch.zeros(0, 3)}, folder / "odd.safetensors")
    save_arrays({"weight": np.ones((2, 3), np.float32)}, folder / "arrays.safetensors")
    save_model(network(), str(folder / "model.safetensors"))


def gguf_files(folder: Path) -> None:
    import gguf

    def begun(name: str, architecture: str = "llama") -> Any:
        writer = gguf.GGUFWriter(folder / f"{name}.gguf", architecture)
        writer.add_name(name)
        writer.add_context_length(2048)
        writer.add_tensor("token_embd.weight", np.ones((8, 32), np.float32))
        return writer

    def ended(writer: Any) -> None:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    ended(begun("plain"))
    for name, template in TEMPLATES.items():
        writer = begun(f"template-{name}")
        writer.add_chat_template(template)
        ended(writer)
    writer = begun("templates")
    writer.add_chat_template([{"name": name, "template": text} for name, text in TEMPLATES.items()])
    ended(writer)
    writer = begun("vocabulary")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", "a", "b", "\u2581a", "{{", "__class__"])
    writer.add_token_scores([0.0] * 8)
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 1])
    ended(writer)
    writer = begun("quantized")
    values = np.random.default_rng(0).standard_normal((4, 256), np.float32)
    for kind in (
        gguf.GGMLQuantizationType.Q8_0,
        gguf.GGMLQuantizationType.Q4_0,
        gguf.GGMLQuantizationType.BF16,
    ):
        writer.add_tensor(f"{kind.name}.weight", gguf.quantize(values, kind), raw_dtype=kind)
    ended(writer)


class _Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.LazyLinear(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).flatten(1)).softmax(-1)
        return result


def onnx_files(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    gives = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [given], [gives], [weight])
    model = helper.make_model(graph, producer_name="by hand")
    model.metadata_props.add(key="names", value="{0: 'person', 1: 'bicycle'}")
    onnx.save(model, folder / "helper.onnx")
    onnx.save(
        model,
        folder / "external.onnx",
        save_as_external_data=True,
        location="external.data",
        size_threshold=0,
    )
    function = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 18)],
    )
    called = helper.make_node("Twice", ["x"], ["y"], domain="local")
    same = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    local = helper.make_graph([called], "g", [given], [same])
    onnx.save(helper.make_model(local, functions=[function], opset_imports=imports), folder / "function.onnx")
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])], "b", [], [helper.make_tensor_value_info("b", 1, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["c"])], "c", [], [helper.make_tensor_value_info("c", 1, None)]
    )
    condition = helper.make_tensor_value_info("c0", TensorProto.BOOL, [])
    chosen = helper.make_node("If", ["c0"], ["y"], then_branch=branch, else_branch=other)
    onnx.save(
        helper.make_model(helper.make_graph([chosen], "g", [condition, given], [same])), folder / "if.onnx"
    )


def onnx_of_torch(folder: Path) -> None:
    picture = _Picture().eval()
    image = torch.randn(2, 3, 16, 16)
    picture(image)
    network_input = (torch.randn(2, 4),)
    torch.onnx.export(network().eval(), network_input, folder / "network.onnx", dynamo=True, verbose=False)
    torch.onnx.export(
        picture, (image,), folder / "picture.onnx", dynamo=True, external_data=False, verbose=False
    )
    free = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(
        network().eval(),
        network_input,
        folder / "dynamic.onnx",
        dynamo=True,
        dynamic_shapes=free,
        verbose=False,
    )
    torch.onnx.export(network().eval(), network_input, folder / "older.onnx", dynamo=False)


def onnx_of_sklearn(folder: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    values = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32)
    labels = (values[:, 0] > 0).astype(int)
    made = {
        "logistic": LogisticRegression(),
        "forest": RandomForestClassifier(3),
        "vectors": SVC(),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    }
    for name, estimator in made.items():
        (folder / f"{name}.onnx").write_bytes(
            to_onnx(estimator.fit(values, labels), values[:1]).SerializeToString()
        )


def keras_files(folder: Path) -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    from keras import layers

    simple = keras.Sequential([keras.Input((4,)), layers.Dense(3, activation="relu"), layers.Dense(2)])
    simple.compile(optimizer="adam", loss="mse", metrics=["mae"])
    simple.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
    seen = keras.Input((8, 8, 3))
    hidden = layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2")(layers.Rescaling(1 / 255)(seen))
    hidden = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(layers.BatchNormalization()(hidden)))
    functional = keras.Model(seen, layers.Dense(5, activation="softmax")(hidden))
    words = keras.Sequential(
        [keras.Input((6,)), layers.Embedding(20, 4), layers.Bidirectional(layers.LSTM(3))]
    )
    for name, model in {"simple": simple, "functional": functional, "words": words}.items():
        model.save(folder / f"{name}.keras")
        model.save(folder / f"{name}.h5")
        model.save_weights(folder / f"{name}.weights.h5")
        (folder / f"{name}.json").write_text(model.to_json())


WRITERS = {
    "safetensors": safetensors_files,
    "gguf": gguf_files,
    "onnx": onnx_files,
    "onnx-torch": onnx_of_torch,
    "onnx-sklearn": onnx_of_sklearn,
    "keras": keras_files,
}
