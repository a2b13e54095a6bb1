"""Figures drawn from records; nothing here runs, reads logs or measures.

=================  =================================================================================
``plots.select``   records as a pandas table: names of cases, and the cases to draw
``plots.draw``     descriptions of panels; page, styles of lines, figures described as text
``plots.figures``  one module a figure, found by ``plots.registry``
``plots.report``   the page about a folder of results
=================  =================================================================================

Importing this package imports no matplotlib; drawing does.
"""
