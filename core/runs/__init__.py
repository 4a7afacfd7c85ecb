"""A run as data: its plan, its tables, how they are stored and read."""
