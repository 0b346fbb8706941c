"""The Kubernetes objects of a run: pure functions from values to plain dicts (list: backend/docs/kubernetes.md).

Nothing here talks to anybody: who creates, watches and deletes these objects is launch/kubernetes.
"""
