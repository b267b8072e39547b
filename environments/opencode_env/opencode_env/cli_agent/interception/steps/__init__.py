"""The steps that a request of a rollout takes before verifiers' server serves it, and what is recorded of it."""
