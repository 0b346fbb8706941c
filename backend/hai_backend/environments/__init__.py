"""Reads the environments that haienv writes to the cluster's storage. It reads text, and executes nothing of a user.

The server lists environments with it, and agents activate one. The files of users may be hostile: every step of a path
is opened separately, without following links, and an environment that does not match the layout is broken.
"""
