"""How hard tasks are for a model, from eval results to the tasks worth training on: `opencode-difficulty`."""
