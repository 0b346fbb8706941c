"""Commands about what tasks use: images, data, environments, workspaces, containers."""
