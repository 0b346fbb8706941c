"""Builds the Kubernetes objects of a run, with pure functions that return dicts.

docs/contributing/kubernetes.md lists the objects. The package launch/kubernetes creates, watches and deletes them.
"""
