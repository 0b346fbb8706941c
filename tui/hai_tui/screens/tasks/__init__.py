"""The page of all tasks, and the actions on tasks."""
