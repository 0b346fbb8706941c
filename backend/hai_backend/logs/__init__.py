"""Log files of ranks: appended at an offset by agents, read over all runs of a task from a cursor on."""
