"""ContainerService: dev containers, and services of tasks."""
