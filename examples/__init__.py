"""Programs that use the packages as a user would."""
