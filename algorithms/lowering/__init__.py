"""Lowering a direct program to operations of concurrent computes and transfers (*Slicing Is
All You Need*, §4.3)."""
