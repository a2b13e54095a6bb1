"""Figures drawn from records; nothing here runs, reads logs or measures.

=================  =================================================================================
``plots.select``   records as a pandas table: what a case is called, which cases are drawn
``plots.draw``     what a panel shows, described once; page, the look of lines, figures told as text
``plots.figures``  one module a figure, found by ``plots.registry``
``plots.report``   the page about a folder of results
=================  =================================================================================

Importing this package imports no matplotlib; drawing does.
"""
