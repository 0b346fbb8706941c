"""Lines of forms."""
