"""The command line: one file per command, and main.py."""
