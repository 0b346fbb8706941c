"""Builds the Kubernetes objects of a run: pure functions from values to dicts (list: docs/contributing/kubernetes.md).

The package launch/kubernetes creates, watches and deletes these objects.
"""
