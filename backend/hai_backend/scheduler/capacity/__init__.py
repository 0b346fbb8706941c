"""What nodes have free, what tasks ask for, and whether it fits."""
