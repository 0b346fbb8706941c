"""One module per group of commands, imported on use."""
