"""Commands that submit tasks, look at them and change them."""
