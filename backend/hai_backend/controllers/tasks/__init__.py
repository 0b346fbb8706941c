"""Tasks in memory and in the store: the one way to change them, and what follows from changes."""
