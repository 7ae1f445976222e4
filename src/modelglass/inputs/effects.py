"""What a forward pass does besides computing, noticed in a copy of the process, which ends afterwards."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_OWN = ("/dev/", "/proc/")  # files that are none
_EVENTS = {
    "os.mkdir": "makes folders",
    "os.remove": "removes files",
    "os.rename": "renames files",
    "os.system": "starts processes",
    "subprocess.Popen": "starts processes",
    "socket.connect": "connects to others",
}


class Effects(io.TextIOBase):
    """Takes the place of the standard output. `seen` says what was noticed first, in words; or nothing."""

    def __init__(self) -> None:
        self.seen = ""
        sys.addaudithook(self._notice)

    def write(self, text: str) -> int:
        self.seen = self.seen or ("prints" if text else "")
        return len(text)

    def _notice(self, event: str, details: tuple[Any, ...]) -> None:
        if not self.seen and (event in _EVENTS or (event == "open" and _writes(*details))):
            self.seen = _EVENTS.get(event, "writes files")


def _writes(path: Any, mode: Any, flags: Any) -> bool:
    if not isinstance(path, (str, bytes)) or not isinstance(flags, int) or not flags & _WRITING:
        return False
    name = os.fsdecode(path)
    return not name.startswith(_OWN) and "__pycache__" not in name
