"""Storage in tasks: rules of operators, and the mounts that a task gets by them."""
