"""Keeps copies of Kubernetes objects in memory. It lists and watches them, and lists again, in case a watch failed.

`source.Source` sends the requests, and launch/kubernetes handles the changes.
"""
