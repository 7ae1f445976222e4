"""Damaged and hostile files, made by code so that every byte can be reviewed."""
