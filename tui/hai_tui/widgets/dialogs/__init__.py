"""Questions and results over the page."""
