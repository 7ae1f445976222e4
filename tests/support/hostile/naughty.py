"""A command that does what ours must not, so that the watch itself is tested."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys


def main(args: list[str]) -> None:
    """Do one forbidden thing, by its name."""
    deeds = {
        "exec": lambda: exec("1"),
        "compile": lambda: compile("1", "<text>", "eval"),
        "find_class": lambda: pickle.loads(b"ccollections\nOrderedDict\n."),
        "system": lambda: os.system("true"),
        "process": lambda: subprocess.run(["true"], check=True),
        "write": lambda: open(os.devnull, "w").close(),
        "import": lambda: __import__("onnx.version"),
        "read": lambda: open(args[1], "rb").close(),
        "crash": lambda: 1 // 0,
        "nothing": lambda: sys.stdout.write("fine\n"),
        "die": lambda: os._exit(9),
    }
    deeds[args[0]]()
    sys.exit(0)
