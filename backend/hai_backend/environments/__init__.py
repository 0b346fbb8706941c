"""Reads environments as haienv leaves them on the cluster's storage. Text only: nothing of a user's is ever executed.

Used by the server, which lists them, and by agents, which activate one. Other people's files may be hostile: every step
of a path is opened by itself and without following links, and what is not as the layout says is broken.
"""
