"""Real training processes: models, and a data-parallel loop over them. Needs PyTorch (``mltcp-testbed[torch]``)."""
