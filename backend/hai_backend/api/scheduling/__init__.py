"""Answers about scheduling: why a task waits, what would start it, when it may start."""
