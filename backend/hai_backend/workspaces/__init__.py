"""Files of workspaces on storage: what they are made of is one page, backend/docs/workspaces.md."""
