"""What is known of nodes, and how a screen full of them is laid out. Pure but for the model that streams fill."""
