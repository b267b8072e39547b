"""The path to the model, attacked: over real HTTP, from inside the real sandbox, and by the real OpenCode."""
