"""How commands print: formats, tables, live tables, logs."""
