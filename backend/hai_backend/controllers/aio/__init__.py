"""Small parts of asyncio that the controllers are made of."""
