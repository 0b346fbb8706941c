"""One class for each service of the API except those of tasks."""
