"""One module per command or small family; each is imported when its command is used."""
