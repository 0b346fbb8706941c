"""`hai demo`: a private cluster, a task suspended for a more urgent one, and the proof that nothing was lost."""
