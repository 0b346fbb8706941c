"""The only places that wait: they turn what happens into events, and instructions into deeds."""
