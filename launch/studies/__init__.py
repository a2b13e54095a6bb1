"""Studies made of many cases: the papers' claims, comparisons, peers."""
