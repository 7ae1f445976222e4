"""Pages as text, Markdown and CSV, a file each."""
