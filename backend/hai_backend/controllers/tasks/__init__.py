"""The task manager, through which all tasks are changed, and the components that react to changes."""
