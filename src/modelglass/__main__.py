"""`python -m modelglass`."""

import os
import sys

# Python puts the current folder first, where a downloaded file may be called like a package.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from modelglass.cli.start import main

main()
