"""Dialogs over a page: questions and results."""
