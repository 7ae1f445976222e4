"""The JSON Schemas that docs/schema publishes: of the report, and of the documents the doors write."""

from __future__ import annotations

from typing import Any

from modelglass.doors.model_info import ModelInfoDocument
from modelglass.doors.unique_modules import PytorchOpsDocument, UniqueModulesDocument
from modelglass.report.codec import document_schema, schema


def published() -> dict[str, dict[str, Any]]:
    """Every schema by the name of its file."""
    return {
        "report-1.json": schema(),
        "model-info-1.json": document_schema(ModelInfoDocument, "model_info.json, version 1"),
        "unique-modules-1.json": document_schema(UniqueModulesDocument, "unique_modules.json, version 1"),
        "pytorch-ops-1.json": document_schema(PytorchOpsDocument, "pytorch_ops.json, version 1"),
    }
