"""Configuration of the documentation site: ``make docs`` builds it into build/docs."""

project = "MLTCP testbed"
author = "The MLTCP testbed's authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = project
html_show_sphinx = False
html_copy_source = False

exclude_patterns = ["notes", "notebooks", "report"]
