"""Which sizes of a run follow from which others."""
