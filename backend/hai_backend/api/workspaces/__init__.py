"""WorkspaceService: trees of files that clients push, pull and watch."""
