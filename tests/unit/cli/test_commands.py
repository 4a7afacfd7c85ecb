"""The one parser: examples, unknown commands, aliases, widths, and completion in real shells."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed.cli import commands, flags, main
from testbed.core.errors import EXIT_OK, EXIT_REQUEST
from testbed.spec import Spec, fields
from testbed.traces import trace as traces

ROOT = Path(__file__).parents[3]
EXAMPLES = [(name, example) for name, command in commands.COMMANDS.items() for example in command.examples]
VERBS = (
    "a",
    "an",
    "the",
    "print",
    "write",
    "repeat",
    "replace",
    "overwrite",
    "execute",
    "show",
    "build",
    "use",
    "with",
    "of",
)
CHEAP = [
    ["run", "--jobs", "2", "--trace", "resnet50", "--rate", "300mbit", "--on", "flow", "--dry-run"],
    ["sweep", str(ROOT / "experiments/interleaving.toml"), "--quick", "--dry-run"], ["schedule", "--scheduler", "list"],
    ["calibrate", "--quick", "--dry-run"], ["schema"], ["show", "resnet50"], ["list"], ["completion", "zsh"],
]  # fmt: skip


@pytest.mark.parametrize(("name", "example"), EXAMPLES)
def test_an_example_is_understood(name: str, example: str) -> None:
    words = shlex.split(re.split("[>|]", example)[0])
    commands.parser([name]).parse_args([name, *words])


@pytest.mark.parametrize("arguments", CHEAP, ids=lambda arguments: arguments[0])
def test_a_cheap_example_runs(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == EXIT_OK


@pytest.mark.parametrize("words", [(), *((name,) for name in commands.COMMANDS), ("cc", "load")], ids=" ".join)
def test_help_fits_and_begins_with_examples(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit) as ended:
            main([*words, "--help"])
        assert ended.value.code == EXIT_OK
        return capsys.readouterr().out.splitlines()

    whole = [word for line in printed(10_000) for word in line.split()]
    for width in (50, 60, 72, 80, 100, 140):
        lines = printed(width)
        assert max(map(len, lines)) <= width
        assert [word for line in lines for word in line.removesuffix(" \\").split()] == whole
        if len(words) < 2:
            examples = lines[1 : lines.index("")]
            assert examples and all(line.startswith("  ") for line in examples)
            assert any(line.startswith("usage: ") for line in lines[len(examples) + 1 :])


def test_the_common_part_of_runs_help_fits_three_screens(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines.index(f"{flags.ADVANCED}:") <= 3 * 24
    advanced = "\n".join(lines[lines.index(f"{flags.ADVANCED}:") :])
    for field in fields.of_struct(Spec).values():
        if field.declaration.flag:
            assert (
                f"  {field.flag}" in re.findall(r"^  --[a-z-]+", advanced, re.MULTILINE)
            ) == field.declaration.advanced


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_help_is_a_noun_phrase_that_ends_with_the_default(name: str) -> None:
    """Of a flag or argument that has one; a number alone in brackets says not that it is one."""
    known = commands.parser([name])
    (choices,) = (action.choices for action in known._actions if isinstance(action, argparse._SubParsersAction))
    for action in choices[name]._actions:
        said = action.help
        if said in (None, argparse.SUPPRESS) or action.dest == "help":
            continue
        usual = action.default not in (None, False, "", [], argparse.SUPPRESS) and action.nargs != argparse.REMAINDER
        field = fields.of_struct(Spec).get(action.dest) if name in ("run", "shell", "ping") else None
        assert (said.endswith(")") and "(default: " in said) or not (usual or field), (action.dest, said)
        assert said.split()[0] not in VERBS and not said.endswith("."), (action.dest, said)


def test_a_command_has_two_or_three_examples() -> None:
    assert {len(command.examples) for command in commands.COMMANDS.values()} <= {2, 3}


def test_an_unknown_command_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rnu"]) == EXIT_REQUEST
    assert "'rnu'" in (said := capsys.readouterr().err) and "'run'" in said


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"mltcp-testbed {testbed.__version__}\n"


def test_an_error_fits_the_width(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["judge", "--no-such-flag"]) == EXIT_REQUEST
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 40


def test_a_command_imports_no_other_one() -> None:
    program = (
        "import sys; from testbed.cli import commands; commands.parser(['schema']); "
        "print(*(name for name in sys.modules if name.startswith('testbed.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"testbed.cli.commands", "testbed.cli.schema"}


@pytest.mark.parametrize(("package", "group"), commands.ALIASES.items())
def test_an_alias_lists_its_commands(package: str, group: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", package, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = set(re.findall(r"^  (\w+)  ", done.stdout, re.MULTILINE))
    assert listed == {name for name, command in commands.COMMANDS.items() if command.group == group}


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == EXIT_OK
    path = folder / f"mltcp.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["mltcp", "r"], {"run", "record", "report"}), (["mltcp", "run", "--see"], {"--seed", "--seeds"}),
        (["mltcp", "completion", "z"], {"zsh"}),
    ],
)  # fmt: skip
def test_bash_completes(words: list[str], offers: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        f"source {shlex.quote(str(script('bash', tmp_path, capsys)))}\n"
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}\n"
        f"function_name=$(complete -p mltcp | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        f"$function_name mltcp {shlex.quote(words[-1])} {shlex.quote(words[-2])}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offers, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_reads_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(shell, tmp_path, capsys)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, "-n", str(path)], check=True)


def test_show_keeps_bytes_at_any_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = f"{traces.load('gpt2').bytes_per_iteration:,}"
    show = ["show", "gpt2", "--rate", "100gbit", "-o", str(tmp_path / "x.png")]
    assert main(show) == 0 and size in capsys.readouterr().out
    assert main([*show, "--keep-duty"]) == 0 and size not in capsys.readouterr().out


@pytest.mark.parametrize("groups", [1, 2])
def test_show_of_many_ranks(groups: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their flows are not listed: there are 10,000 ranks to send to."""
    ranks = list(range(10_000))
    operations: list[dict[str, object]] = [
        {"id": f"x{n}", "kind": "all_to_all", "bytes": "100MB", "group": f"g{n % groups}"} for n in range(4)
    ]
    (tmp_path / "x.json").write_text(
        json.dumps(
            {"version": 2, "name": "x", "groups": {f"g{n}": [ranks] for n in range(groups)}, "operations": operations}
        )
    )
    assert main(["show", str(tmp_path / "x.json"), "-o", str(tmp_path / "x.png"), "--rate", "10gbit"]) == 0
    assert "400,000,000" in capsys.readouterr().out or groups > 1
