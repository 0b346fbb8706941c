"""Log files of ranks: agents append at an offset; clients read all runs of a task from a cursor on."""
