"""Replays traces through the production scheduler on a virtual clock: what would have happened, and what if."""
