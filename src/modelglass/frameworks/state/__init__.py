"""The state of a model and of Python: found wherever it is, replaced during a run, and put back."""
