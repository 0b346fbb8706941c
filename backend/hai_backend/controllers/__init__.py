"""The asynchronous components: they convert observations to events of tasks, and carry out instructions."""
