"""Workspaces: a directory kept the same on a laptop and on the cluster's storage."""
