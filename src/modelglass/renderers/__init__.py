"""One file per output: a report in, text out, no new facts."""
