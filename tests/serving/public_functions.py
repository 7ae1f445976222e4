"""The public functions on an engine of two ranks, in processes as vLLM starts them; what they gave, as JSON.

`python public_functions.py FOLDER RESULT`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scenarios import start, stop, tokens

import modelglass as mg


def main(folder: str, result: str) -> None:
    llm = start(folder, tensor_parallel_size=2)
    before = tokens(llm)
    report = Path(result).with_name("report.json")
    document = Path(result).with_name("model_info.json")
    mg.save(mg.inspect(llm), report)
    info = mg.model_info(llm, "hello", path=document)
    written = json.loads(document.read_text())
    answer = {
        "before": before,
        "after": tokens(llm),
        "report": json.loads(report.read_text()),
        "text": mg.render(mg.load(report), "text"),
        "info": written,
        "written": written == info,
    }
    stop(llm)
    Path(result).write_text(json.dumps(answer))


if __name__ == "__main__":  # vLLM's own processes import this file again
    main(*sys.argv[1:])
