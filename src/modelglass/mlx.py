"""`nn.summary` and `Module.summary` for MLX: `install()` adds them, importing this changes nothing."""

from modelglass.compat.mlx_summary import (
    LayerInfo,
    ModelSummary,
    calculate_memory_usage,
    collect_layer_info,
    count_parameters,
    format_layer_summary,
    install,
    simple_summary,
    summary,
    uninstall,
)

__all__ = [
    "LayerInfo",
    "ModelSummary",
    "calculate_memory_usage",
    "collect_layer_info",
    "count_parameters",
    "format_layer_summary",
    "install",
    "simple_summary",
    "summary",
    "uninstall",
]
