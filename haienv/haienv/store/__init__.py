"""Reads and changes the files of environments: their paths, formats and access rights."""
