"""The user-mode Linux kernel: its source, its build, its cache."""
