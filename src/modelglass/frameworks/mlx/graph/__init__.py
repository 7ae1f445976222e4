"""The graph of a traced run: primitives, the order in which they are evaluated, the calls they belong to."""
