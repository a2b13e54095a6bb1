"""Pages, style and charts that figures share, and descriptions of figures as text."""
