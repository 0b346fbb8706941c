"""Which runs must leave so that a task fits."""
