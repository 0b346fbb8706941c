"""StorageService: mounts of tasks, and the rules that they come from."""
