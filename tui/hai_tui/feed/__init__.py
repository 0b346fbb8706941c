"""What streams say, as values: models that apply changes, and the pumps that fill them."""
