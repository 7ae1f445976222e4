"""One file per question: a model in, an answer out, nothing else touched."""
