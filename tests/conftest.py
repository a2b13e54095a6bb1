"""``shared`` is on the path (pyproject.toml): what its modules hold is imported by name."""

collect_ignore = ["shared"]
