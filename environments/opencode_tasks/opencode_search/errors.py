"""Why a search has no answer, or a page no text."""


class SearchEndpointDown(Exception):
    """The endpoint cannot be asked: its key, its limits, or itself."""


class UnreadablePage(Exception):
    """The page cannot be read; the text is for the agent."""
