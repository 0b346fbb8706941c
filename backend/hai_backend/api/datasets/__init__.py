"""DatasetService: data that tasks read."""
