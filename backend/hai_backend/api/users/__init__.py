"""UserService: users and their rights, quotas, shares and tokens."""
