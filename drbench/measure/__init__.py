"""What a run is worth: the roof, verification, records and timelines."""
