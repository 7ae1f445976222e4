"""`python -m modelglass`."""

from modelglass.cli.main import main

main()
