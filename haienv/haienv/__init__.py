"""Python environments for tasks: layered, locked, shared."""
