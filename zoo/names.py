"""Kinds of architectures, and the checks that each has to pass."""

from __future__ import annotations

KINDS = ("timm", "base", "causal", "other")  # all but the first of transformers
CHECKS = {
    "inspected": "inspected without an exception",
    "ran": "the run reached its end",
    "params": "parameters as torch counts them",
    "macs": "MACs as counted independently",
    "coverage": "every operator's cost known",
    "sums": "totals are the sums of their rows",
    "trace": "no trace left",
    "config": "its `config.json` builds the same model",
}
ONLY = {"config": KINDS[1:]}  # kinds that a check is about, where it is not about all
