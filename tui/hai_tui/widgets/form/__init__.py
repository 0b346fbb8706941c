"""Input fields, and the lines and lists of forms."""
