"""What the files of a model take in memory: weights as they are stored, and the cache of a context."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.api._inspect import read_report
from modelglass.errors import UsageError
from modelglass.options import BuildOptions, Progress, ReadOptions
from modelglass.report.sizes import MOST_TOKENS, device_nbytes
from modelglass.targets import Readable, resolve
from modelglass.targets.paths import is_code_name, is_config_path, is_recording, is_saved

if TYPE_CHECKING:
    from modelglass.report import Footprint


def footprint(
    target: Any,
    *,
    device_memory: int | str | None = None,
    context: int | Sequence[int] = (),
    experts_on_host: bool = False,
    progress: Progress | None = None,
) -> Footprint:
    """What a file or folder of weights takes in memory, and what of it fits into a device.

    Nothing runs: weights count as they are stored, and the KV cache at each `context`, in tokens; without
    one, at lengths up to that which the model was made for. With `device_memory`, of a GGUF file as many
    layers as have room are on the device and the rest on the host; `experts_on_host` keeps experts there.
    """
    from modelglass.analyses.footprint import footprint

    found = resolve(target, BuildOptions())
    if not isinstance(found, Readable):
        raise UsageError(
            f"{found} has no weights to read",
            hint="pass a file or folder with weights; for a model that runs there are fit and memory",
        )
    return footprint(
        read_report(found, ReadOptions(), progress),
        device_nbytes=None if device_memory is None else device_nbytes(device_memory),
        contexts=_lengths(context),
        experts_on_host=experts_on_host,
        components=found.components,
    )


def asks_of_files(target: Any) -> bool:
    """Whether a target is weights in files, which are read and not run: no code, configuration or report."""
    if not isinstance(target, (str, os.PathLike)):
        return False
    path = Path(target)
    others = is_saved(path) or is_config_path(path) or is_recording(path)
    known = is_code_name(os.fspath(target)) or others
    return not known and os.path.lexists(path) and path.suffix != ".py"


def _lengths(context: int | Sequence[int]) -> tuple[int, ...]:
    lengths = (context,) if isinstance(context, int) else tuple(context)
    wrong = next((each for each in lengths if type(each) is not int or not 0 < each <= MOST_TOKENS), None)
    if wrong is not None:
        raise UsageError(f"context must be a number of tokens, got {wrong!r}", hint="give one such as 8192")
    return lengths
