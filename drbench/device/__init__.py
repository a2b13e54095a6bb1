"""Programs run on devices: streams, edges between them, device memory and its windows."""
