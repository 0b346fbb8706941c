"""Why a task waits, and what would start it."""
