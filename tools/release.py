"""``make release``: build a release below ``dist/``, then set the tag. ``make release DRY=1`` only checks.

The version is in ``testbed/__init__.py``. ``python -m tools.release --set 1.2.3`` writes it there, into the files that cite it,
and as a heading with today's date into ``CHANGELOG.md``. Commit that, then `make release`. Nothing is pushed or published.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from testbed.backends.usermode import kernel, shipped
from testbed.core.errors import EXIT_OK, EXIT_REQUEST, MachineError, RequestError, TestbedError
from tools import checksums, image

ROOT = Path(__file__).parents[1]
NAME = "mltcp-testbed"
# Where the version is, besides the changelog; the first is the one that counts.
PLACES = {
    "testbed/__init__.py": r'^(__version__ = ")[^"]+(")',
    "CITATION.cff": r'^(version: "?)[^"\n]+("?)$',
    "codemeta.json": r'^(  "version": ")[^"]+(")',
    ".zenodo.json": r'^(  "version": ")[^"]+(")',
    "docs/report/ro-crate-metadata.json": r'^(.*"softwareVersion": ")[^"]+(")',
    "kernel/dkms.conf": r'^(PACKAGE_VERSION=")[^"]+(")',
    "docs/how-to/deploy-mltcp-on-a-host.md": r'^(sudo dkms .* mltcp/)[^"\n]+()$',
}
ENTRIES = 12  # of each heading in the notes, which are one page
UNRELEASED = "## [Unreleased]\n"


def version(root: Path = ROOT) -> str:
    """Return the version of a checkout."""
    found = re.search(r'^__version__ = "([^"]+)"', (root / "testbed/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def set_version(new: str, root: Path = ROOT, today: datetime.date | None = None) -> None:
    """Write a version and its date into all files that name them.

    Raises `RequestError` for no version, or one in the changelog.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", new):
        raise RequestError(f"{new!r} is no version: three numbers, as in 1.2.3 (https://semver.org).")
    date = (today or datetime.date.today()).isoformat()
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    if f"## [{new}]" in text:
        raise RequestError(f"CHANGELOG.md has a section {new} already.")
    if UNRELEASED not in text:
        raise RequestError(f"CHANGELOG.md has no line {UNRELEASED.strip()!r}, from which the section {new} is made.")
    for name, pattern in PLACES.items():
        path = root / name
        path.write_text(re.sub(pattern, rf"\g<1>{new}\g<2>", path.read_text(), flags=re.MULTILINE))
    citation = root / "CITATION.cff"
    citation.write_text(re.sub(r"(?m)^date-released: .*$", f"date-released: {date}", citation.read_text()))
    changelog.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n## [{new}] - {date}\n", 1))


def section(changelog: str, of: str) -> tuple[str, str] | None:
    """Date and text of a version in the changelog; None where it has none."""
    found = re.search(
        rf"^## \[{re.escape(of)}\] - (\d{{4}}-\d\d-\d\d)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return (found[1], found[2].strip()) if found else None


def notes(of: str, date: str, text: str) -> str:
    """Return one page of notes: the first entries of each heading, and the first sentence of each entry."""
    lines = [f"# MLTCP testbed {of} ({date})"]
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, _, entries = part.partition("\n")
        listed = [re.sub(r"\s+", " ", entry).strip() for entry in re.split(r"^- ", entries, flags=re.MULTILINE)[1:]]
        first = [re.split(r"(?<=[a-z`)\]])\. (?=[A-Z`])", entry)[0].rstrip(".") for entry in listed]
        lines += ["", f"## {heading}", "", *(f"- {sentence}." for sentence in first[:ENTRIES])]
        if len(listed) > ENTRIES:
            lines.append(f"- {len(listed) - ENTRIES} more in CHANGELOG.md.")
    return "\n".join(lines) + "\n"


def git(root: Path, *words: str) -> str:
    """Output of git; empty where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def check(root: Path = ROOT) -> str:
    """The release notes. Raises `RequestError` with everything that keeps this checkout from being released."""
    mine = version(root)
    faults = []
    if changed := git(root, "status", "--porcelain"):
        faults.append(
            f"the tree has changes that are not committed: {', '.join(line.split()[-1] for line in changed.splitlines())}."
        )
    for name, pattern in PLACES.items():
        if not re.search(
            pattern.replace(r'[^"]+', re.escape(mine)).replace(r'[^"\n]+', re.escape(mine)),
            (root / name).read_text(),
            re.MULTILINE,
        ):
            faults.append(f"{name} does not name version {mine}.")
    found = section((root / "CHANGELOG.md").read_text(), mine)
    if found is None or not found[1]:
        faults.append(f"CHANGELOG.md has no section '## [{mine}] - DATE' with entries.")
    tagged = git(root, "rev-parse", "-q", "--verify", f"refs/tags/v{mine}^{{commit}}")
    if tagged and tagged != git(root, "rev-parse", "HEAD"):
        faults.append(f"the tag v{mine} names another commit.")
    if faults or found is None:
        raise RequestError(
            f"version {mine} cannot be released:\n" + "\n".join(f"- {fault}" for fault in faults)
            + "\n`python -m tools.release --set VERSION` writes the version; then commit."
        )  # fmt: skip
    return notes(mine, *found)


def build(dist: Path) -> None:
    """Wheel, source archive, image and documentation, each with the version in its name. Raises `MachineError`."""
    mine = version()
    if not shipped.is_release(found := kernel.find(shipped.release()).identity):
        raise MachineError(
            f"the wheel would contain another kernel than kernel/uml/release.json names: {found.source}, by {found.compiler}. "
            f"Build {shipped.release().source} by {shipped.release().compiler} (`make kernel LINUX_SOURCE=…`)."
        )
    here, wanted = shipped.built_here(), shipped.release()
    if (here.modules_sha256, here.library_sha256) != (wanted.modules_sha256, wanted.library_sha256):
        raise MachineError(
            "the wheel would contain other modules or another library than kernel/uml/release.json names. "
            "Where their source has changed, write the file anew: `python -m testbed.backends.usermode.shipped`."
        )
    dist.mkdir(parents=True, exist_ok=True)
    for old in dist.iterdir():
        if not old.name.endswith("-capsule.tar"):
            old.unlink()
    print("image and wheel", flush=True)
    if image.main([]) != EXIT_OK:
        raise TestbedError("the image could not be built (see above).")
    (wheel,) = (image.CONTEXT / "wheels").glob("mltcp_testbed-*.whl")
    shutil.copy(wheel, dist)
    with (
        (image.CONTEXT / image.ARCHIVE).open("rb") as plain,
        gzip.GzipFile(dist / f"{NAME}-{mine}-image.tar.gz", "wb", compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed)
    print("source archive", flush=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(dist)], cwd=ROOT, check=True)
    print("documentation", flush=True)
    subprocess.run(["make", "--no-print-directory", "docs"], cwd=ROOT, check=True)
    with tarfile.open(dist / f"{NAME}-{mine}-docs.tar.gz", "w:gz") as tar:
        tar.add(ROOT / "build/docs", f"{NAME}-{mine}-docs")


def main(argv: Sequence[str] | None = None) -> int:
    """Build or check a release. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="release", description="Build a release below dist/, and tag it.")
    parser.add_argument("--set", metavar="VERSION", help="only write this version and today's date into the checkout")
    parser.add_argument("--dry", action="store_true", help="only check, and print the notes")
    options = parser.parse_args(argv)
    try:
        if options.set:
            set_version(options.set)
            return EXIT_OK
        page = check()
        if options.dry:
            print(page, end="")
            return EXIT_OK
        dist = ROOT / "dist"
        build(dist)
        (dist / "NOTES.md").write_text(page)
        checksums.write(dist)
    except (TestbedError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", EXIT_REQUEST)
    tag = f"v{version()}"
    if not git(ROOT, "rev-parse", "-q", "--verify", f"refs/tags/{tag}"):
        subprocess.run(["git", "tag", "-a", tag, "-F", str(dist / "NOTES.md")], cwd=ROOT, check=True)
    print((dist / checksums.FILE).read_text(), end="")
    print(f"tagged {tag}. Publish it with `git push origin {tag}`.")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
