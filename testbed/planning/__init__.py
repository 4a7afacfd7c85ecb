"""From what was asked to the runs that answer it; touches no kernel."""
