"""The conformance suite: our own agents keep its promises, and it finds an agent that breaks them."""
