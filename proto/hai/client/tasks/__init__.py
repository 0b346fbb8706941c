"""Calls about tasks, and what clients derive from a task: a diagnosis of its failure, silent agents, filters."""
