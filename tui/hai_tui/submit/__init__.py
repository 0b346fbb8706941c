"""A task that is being written: yaml and form are two views of one text. Pure."""
