"""Commands about users and what belongs to them."""
