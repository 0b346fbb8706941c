"""The page that submits a task."""
