"""What lists say of tasks, and what can be done to them. Pure."""
