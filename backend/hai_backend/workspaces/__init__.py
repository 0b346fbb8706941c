"""Stores the files of workspaces. docs/contributing/workspaces.md describes the layout on storage."""
