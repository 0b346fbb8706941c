"""Explains why a task waits, and finds changes that would start it."""
