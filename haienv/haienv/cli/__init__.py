"""The `haienv` command."""
