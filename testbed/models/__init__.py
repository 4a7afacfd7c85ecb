"""Models of training and networks: bounds, the curves of F, a fluid model, the flow simulator, statistics. No I/O."""
