"""What figures are made of: studies, claims, drawing, the report. It reads run directories and never starts a run."""
