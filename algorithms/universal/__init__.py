"""The universal one-sided algorithm: start with program.py and algorithm1.py; options.py decides
what is open, packing.py plans what packed.py does, arrival.py what pushed.py does."""
