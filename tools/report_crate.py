"""``python -m tools.report_crate``: RO-Crate metadata of the kept report, ``docs/report/ro-crate-metadata.json``.

Lists the report's files with descriptions, and the software and command that made them; the `rocrate` package writes it.
Run it again when a file is added, or the version changes; a test compares. Sizes and hashes are left to git.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from pathlib import Path

import testbed

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs/report"
NAME = "ro-crate-metadata.json"
PUBLISHED = "2026-11-28"  # the day of its last run
LICENCE = "https://spdx.org/licenses/BSD-3-Clause"
AUTHOR = "The MLTCP testbed authors"
FILES = {
    "report.md": ("The report: claims, verdicts and figures", "text/markdown"),
    "report.html": ("The report as one page, with versions and kernels", "text/html"),
    "appendix.html": ("All claims with criteria and controls, all figures", "text/html"),
    "claims.csv": ("A row a claim: value, interval, seeds, verdict, criterion", "text/csv"),
}


def metadata() -> str:
    """The text of the file."""
    from rocrate.model.contextentity import ContextEntity  # noqa: PLC0415
    from rocrate.rocrate import ROCrate  # noqa: PLC0415

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crate = ROCrate(version="1.1")
    crate.name = "The papers' claims, measured"
    crate.description = "What papers on the network side of distributed training claim, and what was measured."
    crate.license = crate.add(
        ContextEntity(crate, LICENCE, properties={"@type": "CreativeWork", "name": "BSD 3-Clause License"})
    )
    crate.datePublished = PUBLISHED
    author = crate.add(ContextEntity(crate, "#authors", properties={"@type": "Organization", "name": AUTHOR}))
    crate.root_dataset["author"] = author
    for name, (what, kind) in FILES.items():
        crate.add_file(REPORT / name, name, properties={"name": what, "encodingFormat": kind})
    crate.add_dataset(
        REPORT / "figures", "figures/", properties={"name": "Figures as PNG and PDF, and their numbers as CSV and JSON"}
    )
    software = crate.add(
        ContextEntity(
            crate,
            "#mltcp-testbed",
            properties={
                "@type": "SoftwareApplication",
                "name": project["name"],
                "description": project["description"],
                "softwareVersion": testbed.__version__,
            },
        )
    )
    made = ContextEntity(crate, "#make-reproduce", properties={"@type": "CreateAction", "name": "make reproduce"})
    made["instrument"], made["result"], made["agent"] = software, crate.root_dataset, author
    crate.root_dataset["mentions"] = crate.add(made)
    with tempfile.TemporaryDirectory() as folder:
        crate.metadata.write(Path(folder))
        document = json.loads((Path(folder) / NAME).read_text())
    document["@graph"].sort(key=lambda entity: str(entity["@id"]))
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the file."""
    (REPORT / NAME).write_text(metadata())
    print(REPORT / NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
