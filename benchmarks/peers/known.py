"""Cases whose right answer is known by hand. Most were chosen because some tool in use gets them wrong.

MACs are the multiply-accumulates of contractions that ran: products of matrices, convolutions, attention's
two products, the gates of recurrent layers. Biases, norms, softmax and element-wise work are not in them, and
a FLOP count is twice the MACs.
"""

from __future__ import annotations

from peers.case import Case
from peers.known_macs import FUNCTIONS, LAYERS, MODELS, RECURRENT
from peers.known_runs import FILES, LOADED, RUNS

__all__ = ["CASES", "GROUPS", "QUESTIONS", "Case"]

GROUPS = {
    "A": "One layer",
    "B": "Recurrent layers",
    "C": "Functions, control flow, ways to call",
    "D": "Whole models",
    "E": "Training, and what a run tells",
    "F": "Files and planning",
    "G": "Files whose loading calls something beyond it, and two that are harmless",
}
QUESTIONS = {
    "macs": "MACs of the forward pass",
    "effective macs": "MACs that do not multiply by a pruned weight",
    "params": "parameters, each once",
    "trainable": "parameters that train",
    "active": "parameters that one token visits",
    "nbytes": "bytes of parameters and buffers",
    "saved": "bytes kept for backward when forward ends",
    "training flops": "FLOPs of forward and backward",
    "outputs": "shapes of all outputs",
    "until the error": "what the layers gave that ran before one raised",
    "training memory": "bytes of weights, gradients and Adam's state in mixed precision",
    "logical": "weights that a file holds",
    "stored": "bytes that they take",
    "file params": "parameters of a saved model",
    "kv cache": "bytes of the KV cache per token",
    "nan": "where the first NaN is",
    "refused": "the file is refused with a reason",
    "stopped": "the file is not called harmless, or not loaded",
}
CASES: dict[str, Case] = {
    case.id: case for cases in (LAYERS, RECURRENT, FUNCTIONS, MODELS, RUNS, FILES, LOADED) for case in cases
}
