"""Reads environments as haienv writes them to the cluster's storage. It reads text only and never executes anything of
a user.

The server uses it to list environments, agents to activate one. The files of users may be hostile: every step of a path
is opened separately, without following links, and anything that does not match the layout is broken.
"""
