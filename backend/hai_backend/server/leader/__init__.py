"""The leader: all components that exist only while this server leads."""
