"""The output of a program on its way to the server: read, split into lines, and spooled on disk."""
