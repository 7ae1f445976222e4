"""`python tests/test_model_info.py` runs the tests of `dump_model_info`, as its document says.

In a clone nothing has to be installed for it but torch, pytest and what modelglass depends on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src"


def main() -> int:
    """Run the tests against the code of this clone, in its own processes as well; the exit code."""
    try:
        import pytest
    except ModuleNotFoundError:
        sys.exit("the tests need pytest: pip install pytest")
    sys.path.insert(0, str(SOURCE))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return pytest.main([str(TESTS / "compat" / "test_dump_model_info.py"), "--rootdir", str(TESTS.parent)])


if __name__ == "__main__":
    raise SystemExit(main())
