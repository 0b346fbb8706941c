"""Reads the requirements that users name on the command line or in files."""
