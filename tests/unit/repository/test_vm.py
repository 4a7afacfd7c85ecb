"""The VM's files, as far as that goes without a VM (tests/vagrant has one)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "vagrant/box"))

import box  # noqa: E402
import vm_kernel  # noqa: E402

# What belongs to user-mode Linux or its virtual time alone.
UML_ONLY = {"CONFIG_UML_TIME_TRAVEL_SUPPORT=y", "CONFIG_HZ=1000", "CONFIG_HOSTFS=y", "CONFIG_STDERR_CONSOLE=y",
            "CONFIG_NULL_CHAN=y"}  # fmt: skip


def settings(file: Path) -> set[str]:
    return {line for line in file.read_text().splitlines() if line and not line.startswith("#")}


def test_the_kernel_has_all_that_user_mode_linux_has() -> None:
    assert settings(ROOT / "kernel/uml/config") - UML_ONLY <= settings(vm_kernel.CONFIG)
    assert "CONFIG_HZ_1000=y" in settings(vm_kernel.CONFIG)


def test_provisioning_knows_the_modules_that_the_box_has() -> None:
    """Else it would build them once more, or, worse, not where a source has changed."""
    script = (ROOT / "vagrant/provision.sh").read_text()
    start = script.index("digest() {")
    function = script[start : script.index("\n}\n", start) + 3]
    done = subprocess.run(
        ["sh", "-euc", f'checkout="{ROOT}"\n{function}digest'], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    )  # fmt: skip
    assert done.stdout.strip() == box.modules_digest()


def test_every_module_is_built_and_loaded() -> None:
    """What provisioning loads follows from the folder, as what DKMS builds does (test_kernel)."""
    built = [path.stem for path in sorted((ROOT / "kernel").glob("tcp_*.c"))]
    (line,) = [line for line in (ROOT / "vagrant/provision.sh").read_text().splitlines() if line.startswith("modules=")]
    command = f"checkout=$1; {line}; echo $modules"
    told = subprocess.run(["sh", "-c", command, "sh", ROOT], capture_output=True, text=True, check=True)
    assert sorted(told.stdout.split()) == built


def test_the_packages_of_the_set_up() -> None:
    done = subprocess.run([ROOT / "tools/setup.sh", "--packages"], capture_output=True, text=True, check=True)
    assert {"clang", "mininet", "python3-venv", "python-is-python3", "sudo"} <= set(done.stdout.split())


def test_a_box_of_another_system_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "fedora", "PRETTY_NAME": "Fedora 42"})
    monkeypatch.setattr(sys, "argv", ["box.py"])
    assert box.main() == 3
    assert "Fedora 42" in capsys.readouterr().err


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(vm_kernel, "TOOLS", {"no-such-tool": "no-such-package"})
    monkeypatch.setattr(sys, "argv", ["vm_kernel.py"])
    assert vm_kernel.main() == 3
    assert "no-such-package" in capsys.readouterr().err


# -- the Vagrantfile -----------------------------------------------------------------


def validate(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("vagrant") is None:
        pytest.skip("vagrant is not installed: `make vm-tools`")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "VAGRANT_HOME": str(tmp_path / "home"),
        **variables,
    }
    (tmp_path / "checkout/vagrant").mkdir(parents=True)
    for name in ("Vagrantfile", "vagrant/provision.sh"):
        shutil.copy(ROOT / name, tmp_path / "checkout" / name)
    return subprocess.run(
        ["vagrant", "validate"], cwd=tmp_path / "checkout", env=environment, capture_output=True, text=True, check=False
    )


def test_vagrantfile_is_ruby() -> None:
    if shutil.which("ruby") is None:
        pytest.skip("ruby is not installed: `make vm-tools`")
    done = subprocess.run(["ruby", "-wc", ROOT / "Vagrantfile"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Syntax OK" and not done.stderr


def test_vagrantfile_is_valid(tmp_path: Path) -> None:
    done = validate(tmp_path, MLTCP_CPUS="1", MLTCP_MEMORY="2048")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("MLTCP_CPUS", "two", "MLTCP_CPUS=two is not a whole number"),
        ("MLTCP_CPUS", "100000", "is not a whole number from 1 to"),
        ("MLTCP_MEMORY", "4", "MLTCP_MEMORY=4 is not a whole number from 1024"),
        ("MLTCP_BOX", "/nowhere/box.json", "there is no /nowhere/box.json"),
        ("MLTCP_KERNEL", "/nowhere", "no vmlinuz in /nowhere"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, variable: str, value: str, words: str) -> None:
    done = validate(tmp_path, **{variable: value})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0 and words in said, said
