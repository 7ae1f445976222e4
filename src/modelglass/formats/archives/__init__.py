"""Archives and compressed files: zip, tar, and whole files that are compressed."""
