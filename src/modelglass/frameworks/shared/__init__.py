"""What the adapters of all frameworks have in common: what is asked of them, and how values are described."""
