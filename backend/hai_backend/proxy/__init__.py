"""The proxy for browsers: forwards HTTP and websockets to services of tasks, through tunnels to their ranks."""
