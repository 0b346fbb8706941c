"""`hai demo`: a private cluster, a task that is suspended for a more urgent one, and the proof that nothing was lost."""
