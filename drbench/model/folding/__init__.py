"""Ranks that do the same at the same time, so that one can stand for all of them in a simulation:
whole process rows and columns of the 2-D algorithms (:mod:`.rings`), and ranks of one-sided
programs (:mod:`.alike`)."""
