"""How long things take, computed: bounds, the curves of F, a fluid model, statistics. No I/O."""
