"""Elects the leader among several servers with one database; see docs/decisions/0008."""
