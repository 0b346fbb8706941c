"""Log files of ranks. Agents append at an offset, and clients read all runs of a task from a cursor on."""
