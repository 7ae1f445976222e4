"""Functions and commands that documents of other tools describe, as views of a report."""
