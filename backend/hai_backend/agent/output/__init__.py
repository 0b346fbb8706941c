"""The path of a program's output to the server: it is read, split into lines, and spooled on disk."""
