"""Committed records of drbench next to other libraries, as the pages show them."""
