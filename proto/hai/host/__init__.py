"""Functions of the local machine that the server and the tools use: disk space, memory, files, and file events."""
