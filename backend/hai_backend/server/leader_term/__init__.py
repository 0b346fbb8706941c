"""Everything that exists only while this server leads."""
