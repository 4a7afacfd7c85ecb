"""Built-in content: topologies, collectives, importers, figures and kernel sources.

In a checkout these are the folders of the repository. In a wheel they are package data below this folder. Either way
a file is imported as ``testbed.content.FOLDER.NAME``, so no generic name of ours can hide a module of the user.
"""

from __future__ import annotations

from testbed.core.environment import ROOT

__path__ = [ROOT]
