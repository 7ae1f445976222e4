"""What people found when they looked into what is not as it should be, each by name."""

from __future__ import annotations

_SESSION = (
    "It is called with a session: an object with a film's frames, the prompts and what was found so far. "
    "Its processor makes one; no signature says what is in it."
)
_NO_FORWARD = "It has no forward pass: only `generate`, `encode` or its parts can be called."
_UNCOUNTED = (
    "Without a GPU its attention gives zeros that ask for gradients, at which torch's counter stops: "
    "modelglass inspects it, and nothing counts it independently."
)

# Failures whose reason is known, by architecture and check.
EXPLAINED: dict[tuple[str, str], str] = {
    ("base:bark", "ran"): _NO_FORWARD,
    ("base:edgetam_video", "ran"): _SESSION,
    ("base:glm_image_vqmodel", "ran"): _NO_FORWARD,
    ("base:mra", "macs"): _UNCOUNTED,
    ("base:sam2_video", "ran"): _SESSION,
    ("base:sam3_tracker_video", "ran"): _SESSION,
    ("base:sam3_video", "ran"): _SESSION,
    ("other:qwen2_5_omni", "ran"): _NO_FORWARD,
    ("other:qwen3_omni_moe", "ran"): _NO_FORWARD,
}

_DIFFERENCE = (
    "differential attention: as built, each of two maps meets the values; written out, their difference does"
)
# Where attention and experts written out are other work than the model's own, and why: counted as built.
AS_BUILT: dict[str, str] = {
    "base:kosmos-2": "the attention from words to a picture: as built, transformers gives torch only as many "
    "keys as there are queries; written out, all of them",
    "timm:vit_dlittle_patch16_reg1_gap_256": _DIFFERENCE,
    "timm:vit_dpwee_patch16_reg1_gap_256": _DIFFERENCE,
    "timm:vit_dwee_patch16_reg1_gap_256": _DIFFERENCE,
}
