"""Implements the `haienv` command."""
