"""Prints results: formats, tables, live tables, logs."""
