"""Notebooks that run as tasks, and notebooks as scripts."""
