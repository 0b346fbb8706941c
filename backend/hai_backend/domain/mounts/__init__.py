"""Storage in tasks: the operators' rules, and the mounts that a task gets from them."""
