"""Questions to the scheduler: why a task waits, what would start it, and when it may start."""
