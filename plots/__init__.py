"""Figures drawn from records, one module a figure; nothing here runs, reads logs or measures.

==========================  ==================================================================
``plots.figures.mlp``        percent of peak against batch size for the MLP layers (Figures 2, 3)
``plots.select.records``    records as a pandas table, from result files and published numbers
``plots.select.cases``      what one case is called
``plots.select.selection``  which cases are drawn, and which line of that figure they become
``plots.draw.chart``        what a panel shows, described once for print and report page
``plots.draw.labels``       small labels that keep clear of each other: pure, no matplotlib
``plots.draw.style``        the colour and marker of every line, the same in every figure
==========================  ==================================================================

Importing this package imports no matplotlib; drawing does.
"""
