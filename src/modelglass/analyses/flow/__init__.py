"""How data flows through a model, from an observed run: what the drawings show."""

from modelglass.analyses.flow.flow import flow

__all__ = ["flow"]
