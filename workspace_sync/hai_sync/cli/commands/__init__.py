"""The commands, in one module each or two related ones. Each module is imported when it is used."""
