"""The scheduling loop: collects changes, runs scheduling passes and carries out their decisions."""
