"""Users, rights, messages and webhooks."""
