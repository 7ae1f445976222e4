"""Chat templates: what a Jinja program reaches."""
