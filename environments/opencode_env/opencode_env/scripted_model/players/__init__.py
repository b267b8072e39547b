"""What the scripted model does in each shipped world: one module per world."""
