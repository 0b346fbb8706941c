"""How webhooks are told: what is said in which form, and over which wire."""
