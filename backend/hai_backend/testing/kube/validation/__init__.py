"""Defaults and validation of objects, as the real API server applies them."""
