"""`hai demo`: suspends a task for a more urgent one on a private cluster, and shows that it loses nothing."""
