"""The changes of tasks that all streams of this server share."""
