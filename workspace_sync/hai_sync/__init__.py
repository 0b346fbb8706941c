"""Keeps a directory in sync between a computer and the storage of the cluster."""
