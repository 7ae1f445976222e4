"""The flow of data as a diagram: for terminals, Mermaid, Graphviz, browsers and programs."""
