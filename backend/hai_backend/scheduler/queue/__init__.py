"""The order of queued tasks: levels, merits, and the order within a user's tasks."""
