"""JSON and YAML: configurations, indexes, and code that they name."""
