"""TaskService and LogService: submits, lists, changes and watches tasks, and reads their logs."""
