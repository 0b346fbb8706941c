"""AgentService: the streams of the agents that run the programs of tasks."""
