"""The draft of a task that a user writes: yaml and form are two views of one text. Does no input or output."""
