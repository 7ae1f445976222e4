"""The JSON Schemas that docs/schema publishes: of our own documents, and of those of other tools."""

from __future__ import annotations

from typing import Any

from modelglass.compat.model_info import ModelInfoDocument
from modelglass.compat.served_model_info import ServedModelDocument
from modelglass.compat.unique_modules import PytorchOpsDocument, UniqueModulesDocument
from modelglass.renderers.json import FLOW, SCAN, VERSION as EACH
from modelglass.report import Comparison, Flow, Scan
from modelglass.report.codec import COMPARISON, VERSION, document_schema, noun_schema, schema


def published() -> dict[str, dict[str, Any]]:
    """Every schema by the name of its file."""
    return {
        "report-1.json": schema(),
        "scan-1.json": noun_schema(Scan, f"modelglass scan, version {EACH}", format=SCAN, version=EACH),
        "flow-1.json": noun_schema(Flow, f"modelglass flow, version {EACH}", format=FLOW, version=EACH),
        "comparison-1.json": noun_schema(
            Comparison, f"modelglass comparison, version {VERSION}", format=COMPARISON, version=VERSION
        ),
        "model-info-1.json": document_schema(ModelInfoDocument, "model_info.json, version 1"),
        "model-info-vllm-1.json": document_schema(
            ServedModelDocument, "model_info.json of an engine, version 1"
        ),
        "unique-modules-1.json": document_schema(UniqueModulesDocument, "unique_modules.json, version 1"),
        "pytorch-ops-1.json": document_schema(PytorchOpsDocument, "pytorch_ops.json, version 1"),
    }
