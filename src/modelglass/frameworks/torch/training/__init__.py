"""Training steps of torch: passes and optimizers."""
