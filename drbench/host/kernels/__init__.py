"""Loops over the elements of local arrays that are no products."""
