"""Keeps copies of Kubernetes objects in memory: lists, then watches, and lists again, because a watch may miss changes.

`source.Source` does the requests; launch/kubernetes handles the changes.
"""
