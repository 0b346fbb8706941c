"""UserService: users, rights, quotas, shares and tokens."""
