"""Configurations: files that say how to build a model, read as if a stranger had written them, then built.

What a file names is called only where it is proven to be a model class, or where the user trusts the file.
Weights are not created where that can be avoided.
"""

from modelglass.configs.building import Built, built, built_by, is_huggingface, section
from modelglass.configs.examples import Example, example
from modelglass.configs.reading import read

__all__ = ["Built", "Example", "built", "built_by", "example", "is_huggingface", "read", "section"]
