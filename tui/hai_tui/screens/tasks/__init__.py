"""The page of all tasks, and what can be done to them."""
