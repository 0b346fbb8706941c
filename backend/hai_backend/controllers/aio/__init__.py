"""Small asyncio components that the controllers use."""
