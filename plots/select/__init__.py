"""Records to what is drawn."""
