"""Storage in tasks: the rules of operators, and the mounts that a task gets from them."""
