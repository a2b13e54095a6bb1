"""Chains of products with functions between them: their layouts chosen together, their steps one
program."""
