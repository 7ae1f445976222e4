"""Files that torch writes, read without torch."""
