"""Columns of each kind of resource, for the command line and the terminal app."""

QUEUE_TASKS = 2000
"""The server lists at most this many waiting tasks."""
