"""Printing of results: formats, tables, live tables, logs."""
