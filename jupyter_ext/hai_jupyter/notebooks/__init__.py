"""Notebooks as tasks."""
