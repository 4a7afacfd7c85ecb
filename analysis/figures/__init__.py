"""Figures, one file each: ``draw(experiment, out) -> list[Path]`` writes PNG, PDF and the data as CSV,
or nothing for an experiment that it does not concern."""
