"""Chains of multiplications with functions between them: their layouts are chosen together, their
steps are one program."""
