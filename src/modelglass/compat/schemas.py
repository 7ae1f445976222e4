"""The JSON Schemas that docs/schema publishes: of our own documents, and of those of other tools."""

from __future__ import annotations

from typing import Any

from modelglass.compat.model_info import ModelInfoDocument
from modelglass.compat.served_model_info import ServedModelDocument
from modelglass.compat.unique_modules import PytorchOpsDocument, UniqueModulesDocument
from modelglass.report.codec import document_schema, schemas


def published() -> dict[str, dict[str, Any]]:
    """Every schema by the name of its file."""
    return {
        **schemas(),
        "model-info-1.json": document_schema(ModelInfoDocument, "model_info.json, version 1"),
        "model-info-vllm-1.json": document_schema(
            ServedModelDocument, "model_info.json of an engine, version 1"
        ),
        "unique-modules-1.json": document_schema(UniqueModulesDocument, "unique_modules.json, version 1"),
        "pytorch-ops-1.json": document_schema(PytorchOpsDocument, "pytorch_ops.json, version 1"),
    }
