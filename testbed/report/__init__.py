"""The parts of figures: studies, claims, drawing, the report. It reads run directories and never starts a run."""
