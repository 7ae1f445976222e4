"""`python -m modelglass`."""

from modelglass.cli.start import main

main()
