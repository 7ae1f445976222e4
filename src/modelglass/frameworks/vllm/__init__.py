"""vLLM: engines that serve a model, and the modules they are made of.

vLLM loads `plugin` of this package in each of its processes, and `building` starts a process of its own for
what it wants to know. Neither needs torch or vLLM here.
"""
