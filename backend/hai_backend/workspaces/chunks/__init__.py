"""Assembles large files from chunks, each of which a client sends once."""
