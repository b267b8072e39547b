"""One page that shows what the agents of runs did, why they scored, and what a trainer gets.

The command `opencode-report` writes it: one HTML file that fetches nothing. Its figures are those of
`opencode-difficulty` and `opencode-trainable`; what it adds is the rollouts themselves, compressed inside the page.
"""
