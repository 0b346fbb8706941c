"""Calls about tasks, and what clients derive from a task: state, diagnosis, silent agents."""
