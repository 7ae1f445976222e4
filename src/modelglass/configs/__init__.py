"""Configurations: files that say how to build a model, read as if a stranger had written them, then built.

Only code that the file names, or the user, is run. Weights are not created where that can be avoided.
"""

from modelglass.configs.building import Built, built, built_by, section
from modelglass.configs.examples import Example, example
from modelglass.configs.process import importing
from modelglass.configs.reading import read

__all__ = ["Built", "Example", "built", "built_by", "example", "importing", "read", "section"]
