"""Files of workspaces on storage: what they are made of is one page, docs/contributing/workspaces.md."""
