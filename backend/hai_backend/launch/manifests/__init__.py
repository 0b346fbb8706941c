"""Builds the Kubernetes objects of a run: pure functions from values to dicts (list: backend/docs/kubernetes.md).

The package launch/kubernetes creates, watches and deletes these objects.
"""
