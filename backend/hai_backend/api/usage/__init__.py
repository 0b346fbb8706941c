"""UsageService: what ranks used and how busy the cluster was."""
