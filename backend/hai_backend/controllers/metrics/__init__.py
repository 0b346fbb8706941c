"""Counts tasks and records usage while the server leads."""
