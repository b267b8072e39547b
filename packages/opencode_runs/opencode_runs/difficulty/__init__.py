"""How hard tasks are for a model, from eval results to the tasks worth training on: `opencode-difficulty`.

Nothing here needs a network, and reading traces needs none of the env's own parts.
"""
