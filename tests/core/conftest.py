"""The helper modules of this folder (``oracles``, ``virtual_time``) are imported by name, whatever
the import mode."""

import sys
from pathlib import Path

folder = str(Path(__file__).parent)
if folder not in sys.path:
    sys.path.insert(0, folder)
