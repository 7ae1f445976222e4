"""The tools, each called as its own documentation says. The text of a call is what is run and what is shown.

In a call, `model`, `args` and `kwargs` are the case's; `named` has all of them by the name of the parameter,
and `path` is a file. The call's last line is its answer.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool, and what it is asked by which call.

    `adapted` has, for questions whose documented call needed it, another call, and `why` it needed another.
    It is made when the first one raises, or has no place for keyword arguments that a case has. `left_out` is
    what the tool itself says it did not count.
    """

    package: str
    setup: str
    calls: Mapping[str, str]
    adapted: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    left_out: str = ""
    remark: str = ""  # what a reader should know about the calls
    only: str | None = None  # the one format that it is asked about

    def shown(self, question: str, *, adapted: bool = False) -> str:
        """The call as a page shows it."""
        return dedent((self.adapted if adapted else self.calls)[question]).strip()


def run(code: str, names: dict[str, Any]) -> Any:
    """The value of the last line, after the lines before it."""
    tree = ast.parse(dedent(code).strip())
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else ast.Expr(ast.Constant(None))
    exec(compile(tree, "<call>", "exec"), names)
    return eval(compile(ast.fix_missing_locations(ast.Expression(last.value)), "<call>", "eval"), names)


MODELGLASS = "report = mg.inspect(model, inputs=mg.Inputs(args, kwargs){})\n"
TORCHINFO = "torchinfo.summary(model, input_data=args, verbose=0, **kwargs)"
PTFLOPS = """
macs, params = get_model_complexity_info(
    model, (1,), input_constructor=lambda _: named, backend="aten", as_strings=False,
    print_per_layer_stat=False,
)
"""
CALFLOPS_PLAIN = """
flops, macs, params = calculate_flops(
    PlainCall(model, kwargs), args=list(args), print_results=False, output_as_string=False
)
"""
CALFLOPS = """
flops, macs, params = calculate_flops(
    model, args=list(args), kwargs=kwargs, print_results=False, output_as_string=False
)
"""
TORCHLENS = "log = tl.trace(model, args, kwargs)\n"
FVCORE = "flops = FlopCountAnalysis(model, args)\n"
FVCORE_PLAIN = "flops = FlopCountAnalysis(PlainCall(model, kwargs), args)\n"
COUNTER = "with FlopCounterMode(display=False) as counter:\n    "

TOOLS: dict[str, Tool] = {
    "modelglass": Tool(
        package="modelglass",
        setup="import modelglass as mg",
        calls={
            "macs": MODELGLASS.format("") + "report.cost.macs",
            "effective macs": MODELGLASS.format("") + "report.cost.effective_macs",
            "params": "mg.inspect(model).counts.params",
            "trainable": "mg.inspect(model).counts.trainable",
            "active": "mg.inspect(model).counts.active_params",
            "nbytes": "mg.inspect(model).counts.nbytes",
            "saved": MODELGLASS.format(", train=True") + "report.memory.saved_nbytes",
            "training flops": MODELGLASS.format(", train=True") + "report.cost.flops",
            "outputs": MODELGLASS.format("") + "[output.shape for output in report.run.outputs]",
            "until the error": MODELGLASS.format(', on_failure="report"')
            + "[(call.module, call.outputs[0].shape) for call in report.model.calls if call.outputs]",
            "training memory": """
                change = mg.WhatIf(weights="bfloat16", master_weights=True)
                report = mg.inspect(model, args, train=True, optimizer="adamw", what_if=change)
                parts = report.memory.by_category
                parts["parameters"] + parts["gradients"] + parts["optimizer_state"]
            """,
            "logical": "mg.inspect(path).counts.logical_params",
            "stored": "mg.inspect(path).counts.nbytes",
            "file params": "mg.inspect(path).counts.params",
            "kv cache": MODELGLASS.format("") + "report.memory.kv_cache.nbytes_per_token",
            "nan": """
                stats = mg.inspect(path, stats=True).stats
                next((name, each.first_nan) for name, each in stats.items() if each.nan)
            """,
            "refused": "mg.scan(path).exit_code() == 3",
            "stopped": "mg.scan(path).exit_code() != 0",
        },
        left_out="list(report.cost.unknown_ops)",
    ),
    "torchinfo": Tool(
        package="torchinfo",
        setup="import torchinfo",
        calls={
            "macs": TORCHINFO + ".total_mult_adds",
            "params": TORCHINFO + ".total_params",
            "trainable": TORCHINFO + ".trainable_params",
            "saved": TORCHINFO + ".total_output_bytes",
            "outputs": TORCHINFO + ".summary_list[0].output_size",
            "until the error": TORCHINFO,
        },
        remark='"saved" is what it prints as "Forward/backward pass size".',
    ),
    "fvcore": Tool(
        package="fvcore",
        setup="from fvcore.nn import FlopCountAnalysis, parameter_count",
        calls={
            "macs": FVCORE + "flops.total()",
            "params": 'parameter_count(model)[""]',
        },
        adapted={"macs": FVCORE_PLAIN + "flops.total()"},
        why="it takes positional tensors only, and traces nothing but tensors in outputs: keyword arguments "
        "are bound beforehand, and of a Hugging Face output the logits alone are given back",
        left_out="list(flops.unsupported_ops())",
        remark="Its documentation counts one multiply-add as one flop, and adds norms and poolings.",
    ),
    "ptflops": Tool(
        package="ptflops",
        setup="from ptflops import get_model_complexity_info",
        calls={"macs": PTFLOPS + "macs", "params": PTFLOPS + "params"},
        remark="With the backend that its documentation recommends.",
    ),
    "calflops": Tool(
        package="calflops",
        setup="from calflops import calculate_flops",
        calls={
            "macs": CALFLOPS + "macs",
            "params": CALFLOPS + "params",
            "training flops": CALFLOPS.replace("kwargs=kwargs", "kwargs=kwargs, include_backPropagation=True")
            + "flops",
        },
        adapted={"macs": CALFLOPS_PLAIN + "macs"},
        why="it moves keyword arguments to a device as if all were tensors: they are bound beforehand",
        remark="It asks a model for its first parameter, and raises where there is none.",
    ),
    "torchlens": Tool(
        package="torchlens",
        setup="import torchlens as tl",
        calls={
            "macs": TORCHLENS + "log.total_macs_forward",
            "params": TORCHLENS + "log.num_params",
            "trainable": TORCHLENS + "log.num_params_trainable",
            "saved": TORCHLENS + "log.total_autograd_memory",
            "training flops": """
                capture = tl.options.CaptureOptions(save_grads=True)
                log = tl.trace(model, args, kwargs, capture=capture)
                log.log_backward(log[log.output_layers[0]].out.sum())
                log.total_flops
            """,
            "outputs": TORCHLENS + "[log[name].shape for name in log.output_layers]",
            "until the error": TORCHLENS + "log",
        },
        left_out="[each.func_name for each in log.unknown_flop_ops]",
        remark='"saved" is its sum of autograd-saved bytes. By default it keeps what every operator gives, '
        "which is in its time and memory.",
    ),
    "torchview": Tool(
        package="torchview",
        setup="from torchview import draw_graph",
        calls={
            "outputs": """
                graph = draw_graph(model, input_data=args, **kwargs)
                ends = {node for edge in graph.edge_list for node in edge if node.name == "output-tensor"}
                [node.tensor_shape for node in ends]
            """,
            "until the error": "draw_graph(model, input_data=args, **kwargs)",
        },
        remark="It draws, and counts nothing; the shapes are those of the nodes it draws.",
    ),
    "FlopCounterMode": Tool(
        package="torch",
        setup="from torch.utils.flop_counter import FlopCounterMode",
        calls={
            "macs": COUNTER + "model(*args, **kwargs)\ncounter.get_total_flops() // 2",
            "training flops": COUNTER + "model(*args, **kwargs).sum().backward()\ncounter.get_total_flops()",
        },
        remark="Part of torch.",
    ),
    "accelerate": Tool(
        package="accelerate",
        setup="""
            from accelerate.utils import calculate_maximum_sizes
            from accelerate.commands.estimate import estimate_training_usage
        """,
        calls={
            "nbytes": "calculate_maximum_sizes(model)[0]",
            "training memory": """
                total, largest = calculate_maximum_sizes(model)
                max(estimate_training_usage(total, "float16").values())
            """,
        },
        remark="`accelerate estimate-memory` takes a model from the hub; these are the functions that it "
        "calls then, and what it shows of their results.",
    ),
    "picklescan": Tool(
        package="picklescan",
        setup="from picklescan.scanner import scan_file_path",
        calls={
            "stopped": """
                result = scan_file_path(str(path))
                result.issues_count > 0 or result.scan_err
            """
        },
        remark="The function behind `picklescan --path`; that a scan failed counts as stopped.",
    ),
    "torch.load": Tool(
        package="torch",
        setup="import torch",
        calls={"stopped": "raises(torch.load, path, weights_only=True)"},
        remark="A file is stopped when loading it raises and runs nothing.",
    ),
    "safetensors": Tool(
        package="safetensors",
        setup="from safetensors import safe_open",
        calls={"refused": 'raises(safe_open, path, framework="pt")'},
        only="safetensors",
    ),
    "gguf": Tool(
        package="gguf",
        setup="from gguf import GGUFReader",
        calls={"refused": "raises(GGUFReader, path)"},
        only="GGUF",
    ),
}
