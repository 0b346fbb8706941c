"""The task list's filter, and actions on tasks. Pure."""
