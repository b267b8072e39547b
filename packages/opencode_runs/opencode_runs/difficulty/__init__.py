"""How hard tasks are for a model: from eval results to the tasks worth training on.

The command `opencode-difficulty` rates runs, joins the figures to their dataset, shows and splits it, and recommends
the band that teaches. Nothing here needs a network, and reading traces needs none of the env's own parts.
"""
