"""Run directories → tables, figures, report. A pure function of files: it never starts anything."""
