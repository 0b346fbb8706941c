"""The scheduling loop: snapshot, pass, and the decisions that are carried out."""
