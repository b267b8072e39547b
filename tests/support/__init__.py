"""What several test packages share: container images made on the spot, and one rollout of the harness alone."""
