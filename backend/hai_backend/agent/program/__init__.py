"""The user's program: prepared, started, asked to save, watched and ended."""
