"""AgentService: what agents say, and what they are told."""
