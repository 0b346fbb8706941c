"""What it means to be inside an environment: values, and how each shell is told."""
