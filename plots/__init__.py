"""Figures drawn from records, one module a figure; nothing here runs, reads logs or measures.

===================  ==================================================================
``plots.figures.mlp``        percent of peak against batch size for the MLP layers (Figures 2, 3)
``plots.select.selection``  which cases become which line of that figure: pure, no matplotlib
``plots.select.sources``    records from result files and from files of published numbers
``plots.draw.labels``     small labels that keep clear of each other: pure, no matplotlib
``plots.draw.style``      the colour and marker of every line, the same in every figure
===================  ==================================================================

Importing this package imports no matplotlib; drawing does.
"""
