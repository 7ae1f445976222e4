"""Whether a step fits a device, the largest size that does, and what would make it fit."""
