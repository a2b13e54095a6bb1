"""Pages, style and charts that figures share, and what they draw told as text."""
