"""Elects the leader among several servers with one database; see backend/docs/decisions/0008."""
