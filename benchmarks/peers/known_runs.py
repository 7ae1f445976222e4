"""Training runs, plans and files of which something is known that is not a count of MACs."""

from __future__ import annotations

import torch

from peers import builders as made
from peers.builders import given, r
from peers.case import case_of, case_of_file, sixteen_tokens

RUNS = (
    case_of(
        "E1",
        "`nn.Linear(16, 16)` applied 100 times to 8x16",
        lambda: made.Repeated(100),
        lambda: given(r(8, 16)),
        "100 * 8 * 16 * 4",
        saved=51_200,
    ),
    case_of(
        "E3",
        "attention by hand, 512 positions: `qkv` of 64 to 192, products and softmax",
        made.ExplicitAttention,
        lambda: given(r(1, 512, 64)),
        "4 * (512 * 64 + 512 * 192 + 512 * 512)",
        saved=1_572_864,
    ),
    case_of(
        "E5",
        "8 blocks of linear and GELU, checkpointed in 4 segments",
        lambda: made.InSegments(reentrant=False),
        lambda: given(r(8, 16)),
        "3 * 512 + 2 * (512 + 512)",
        saved=3_584,
    ),
    case_of(
        "E9",
        "two `nn.Linear(16, 16)` on 8x16, forward and backward",
        made.two_layers,
        lambda: given(r(8, 16)),
        "(2 + 3) * 2 * 8 * 16 * 16",
        training_flops=20_480,
    ),
    case_of(
        "E9a",
        "the same, the first layer frozen",
        lambda: made.two_layers(0),
        lambda: given(r(8, 16)),
        "(2 + 1) * 2 * 8 * 16 * 16",
        training_flops=12_288,
    ),
    case_of(
        "E9b",
        "the same, the last layer frozen",
        lambda: made.two_layers(1),
        lambda: given(r(8, 16)),
        "(2 + 2) * 2 * 8 * 16 * 16",
        training_flops=16_384,
    ),
    case_of(
        "E12",
        "the third layer raises",
        made.wrong_width,
        lambda: given(r(2, 3)),
        until_the_error=[["0", [2, 4]], ["1", [2, 4]]],
    ),
    case_of(
        "E14",
        'output `{"logits": 2x8, "aux": a scalar}`',
        made.TwoOutputs,
        lambda: given(r(2, 8)),
        outputs=[[], [2, 8]],
    ),
)


FILES = (
    case_of(
        "F1",
        "a billion parameters, mixed precision, Adam",
        made.billion,
        lambda: given(torch.zeros(1, 31_250)),
        training_memory=(16_000_000_000, 18_000_000_100),
    ),
    case_of_file(
        "F3",
        "MLX's `nn.Linear(4096, 4096)` in 4 bits, groups of 64",
        made.mlx_in_four_bits,
        logical=16_777_216,
        stored=9_437_184,
    ),
    case_of_file(
        "F5",
        "D2 as transformers saves it: no tensor for the tied head",
        made.tied_without_head,
        file_params=138_048,
    ),
    case_of(
        "F7", "Qwen2.5-7B in bfloat16", made.qwen, sixteen_tokens, "2 * 28 * 4 * 128 * 2", kv_cache=57_344
    ),
    case_of_file("F9", "two shards, one NaN in the second", made.one_nan, nan=["b.weight", 1_234]),
    case_of_file(
        "F10a",
        "safetensors, header longer than the file",
        made.hostile_file("76-length-over-file"),
        refused=True,
    ),
    case_of_file("F10b", "safetensors, overlapping tensors", made.hostile_file("80-overlap"), refused=True),
    case_of_file("F10c", "safetensors, a name given twice", made.hostile_file("78-duplicate"), refused=True),
    case_of_file("F10d", "GGUF, a tensor's name given twice", made.hostile_file("90-tensor"), refused=True),
    case_of_file(
        "F10e", "GGUF, a tensor larger than any file", made.hostile_file("93-overflow"), refused=True
    ),
    case_of_file("F10f", "GGUF, 2^63 tensors", made.hostile_file("87-tensors"), refused=True),
)

# Each was loaded for real, by `torch.load(weights_only=False)` or `pickle.load`, and did what it names.
RUNNING = {
    "1-system": "`os.system` in `data.pkl`",
    "1-exec": "`exec` in `data.pkl`",
    "2-protocol-0": "the same in pickle's protocol 0",
    "4-evil-first": "two members of one name, the first one calls",
    "11-local-name": "a member's two names differ",
    "12-prefix": "a pickle before the archive",
    "12-prefix-shifted": "a pickle before the archive, offsets moved",
    "37-pickle": "a pickle inside a pickle, through `torch.storage`",
    "37-zip": "an archive inside a pickle, through `torch.storage`",
    "40-memo": "the name of the function comes from the memo",
    "41-dotted": "`os.system` reached through `pathlib`",
    "43-sqlite3": "`sqlite3.connect` makes a file",
    "43-tarfile": "`tarfile.open` makes a file",
    "44-inst": "a call by `INST`",
    "44-obj": "a call by `OBJ`",
    "45-setstate": "a call by `BUILD` and `__setstate__`",
    "47-no-stop": "the stream ends after the call",
    "48-garbage": "no opcode after the call",
    "48-garbage-after-stop": "garbage after the end",
    "66-protocol": "an old file, in its protocol number",
    "66-sys-info": "an old file, in its system information",
    "66-object": "an old file, in its object",
    "66-keys": "an old file, in its list of keys",
    "71-tar": "a tar file of the oldest torch",
}
LOADED = (
    *(
        case_of_file(f"G{number}", what, made.hostile_file(id), stopped=True)
        for number, (id, what) in enumerate(RUNNING.items(), 1)
    ),
    case_of_file("G0a", "weights, as `torch.save` writes them", made.weights_alone, stopped=False),
    case_of_file("G0b", "weights and the state of an optimizer", made.weights_and_optimizer, stopped=False),
)
