"""Parts of pages, a file each."""
