"""Turns a command line into submitted tasks."""
