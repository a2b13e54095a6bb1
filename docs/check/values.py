"""Numbers of the pages, each computed from committed records."""

FUNCTIONS = {}
