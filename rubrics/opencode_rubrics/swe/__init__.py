"""Software engineering tasks: the row form, what an agent changed, and the verdict of a suite run apart from it."""
