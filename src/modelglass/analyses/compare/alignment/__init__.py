"""Which parts of two models are each other's counterparts."""
