"""ArtifactService: the input and output of tasks."""
