"""Figures drawn from records; nothing here runs, reads logs or measures.

=================  =================================================================================
``drbench.plots.select``   records as a pandas table: names of cases, and the cases to draw
``drbench.plots.draw``     descriptions of panels; page, styles of lines, figures described as text
``drbench.plots.figures``  one module a figure, found by ``drbench.plots.registry``
``drbench.plots.report``   the page about a folder of results
=================  =================================================================================

Importing this package imports no matplotlib; drawing does.
"""

import logging
import os

# matplotlib keeps its list of fonts in the home folder, or in a temporary one, and warns of that
for _name in ("matplotlib", "matplotlib.font_manager"):
    logging.getLogger(_name).addFilter(lambda record: record.levelno > logging.WARNING)
if os.path.expanduser("~") == "~":  # there is no home folder, for which it would look
    os.environ.setdefault("MPLCONFIGDIR", os.devnull)
