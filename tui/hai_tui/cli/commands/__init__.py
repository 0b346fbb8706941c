"""The commands. Each module has one command or a small group, and is imported when a command of it is used."""
