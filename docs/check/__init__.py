"""The numbers of the pages, held against committed records.

``python -m docs.check`` compares; ``python -m docs.check --write`` puts right what differs. What
counts as a measured number, and how a page says where it comes from, is in :mod:`docs.check.page`;
the values are computed in ``values``, the generated tables in ``tables``.
"""
