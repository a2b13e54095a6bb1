"""Pages, style and labels that figures share."""
