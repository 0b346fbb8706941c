"""One sync from beginning to end: look at both sides, decide, carry out, remember."""
