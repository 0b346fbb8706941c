"""MessageService: what operators tell users."""
