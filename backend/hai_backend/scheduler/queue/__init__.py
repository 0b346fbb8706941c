"""The order of waiting tasks: levels, ratings, turns of users."""
