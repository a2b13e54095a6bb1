"""Tuning: choose layouts, algorithm and options of a multiplication, in four steps.

1. :mod:`.enumerate` lists the candidates: layouts of A, B and C, and other algorithms.
2. :mod:`.bound` gives each a lower bound of its cost, triples of layouts all at once.
3. :mod:`.rank` simulates the most promising next, until no bound is below the last place.
4. :mod:`.report` says what the current layouts cost, which are best, and whether changing pays.
"""
