"""TaskService and LogService: submit, look, change, follow."""
