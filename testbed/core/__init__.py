"""The ground floor: errors, units, texts, and a run as data."""
