"""Garbage collection, the end of a terminal, and repairs of Textual."""
