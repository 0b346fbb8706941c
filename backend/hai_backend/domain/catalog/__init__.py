"""Things that tasks name: images, registries, artifacts, datasets, ports, capabilities."""
