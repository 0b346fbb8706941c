"""Who somebody is (tokens, run tokens, the directory of users) and what they may do (permissions)."""
