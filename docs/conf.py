"""Configuration of the documentation site: ``make docs`` builds it into build/docs."""

from pathlib import Path

project = "MLTCP testbed"
author = "The MLTCP testbed's authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = project
html_show_sphinx = False
html_copy_source = False

# Pages at the top that have no successor in a folder yet.
OLD = [path.name for path in Path(__file__).parent.glob("*.md") if path.name != "index.md"]
exclude_patterns = ["notes", "notebooks", "report", *OLD]
suppress_warnings = ["myst.xref_missing"]
