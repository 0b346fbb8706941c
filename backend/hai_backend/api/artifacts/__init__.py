"""ArtifactService: what tasks have made and need."""
