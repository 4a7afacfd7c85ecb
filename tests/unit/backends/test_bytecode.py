"""What uv installs has no bytecode: it is compiled once, before the first run."""

from __future__ import annotations

from pathlib import Path

from testbed.backends.usermode import bytecode


def test_compiled_once_and_the_mark_comes_last(tmp_path: Path) -> None:
    for name in ("one/a.py", "one/b.py", "two/last.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "one/broken.py").write_text("x = (\n")  # for another Python, as some packages have them
    packages, last = ("one", "two", "missing"), "two/last.py"
    assert bytecode.ensure(tmp_path, packages, last)
    compiled = sorted(path.name.split(".")[0] for path in tmp_path.rglob("*.pyc"))
    assert compiled == ["a", "b", "last"]
    assert not bytecode.ensure(tmp_path, packages, last)


def test_what_is_named_is_there() -> None:
    assert (Path(bytecode.__file__).parents[3] / bytecode.LAST).is_file()
