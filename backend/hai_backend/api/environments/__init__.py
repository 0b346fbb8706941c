"""EnvironmentService: Python environments on the cluster's storage."""
