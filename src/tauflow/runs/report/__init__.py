"""Reports on runs, in HTML and Markdown."""
