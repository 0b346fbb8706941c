"""Resources that tasks refer to: images, registries, artifacts, datasets and ports."""
