"""``make box``: a Vagrant box for libvirt, from Debian's packages alone.

`mmdebstrap` makes the root file system, of the release this machine runs; the VM's kernel
(`vm_kernel.py`), the testbed's Python environment and its wheel are put into it, so that `vagrant up`
needs no network. The kernel boots directly: the disk has neither partitions nor a boot
loader. In the cache::

    ~/.cache/mltcp/vm/box/bookworm-custom/
        box.json        name, version, digest: what MLTCP_BOX names
        libvirt.box     the box
        vmlinuz         its kernel; for Debian's own an initrd.img, too
        manifest.txt    every Debian and Python package in it, with its version

With the same packages in Debian's archive and on PyPI the same manifest comes out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import vm_kernel
from vm_kernel import sha256

from testbed import __version__
from testbed.backends.usermode.build import Say, check_space, check_tools, disk_errors, locked
from testbed.backends.usermode.source import run
from testbed.core.environment import ROOT
from testbed.core.errors import EXIT_OK, MachineError, TestbedError
from testbed.core.runs import rundir
from tools import image

HERE = Path(__file__).parent
DISK_GB = 16
EPOCH = 1_735_689_600  # the time of everything whose time would otherwise be now (1 January 2025)
IDENTITY = "6d6c7463-7000-4000-8000-000000000000"  # of the file system
SPACE_BYTES = 8 << 30
TOOLS = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "qemu-img": "qemu-utils", "fakeroot": "fakeroot"}
# Debian's own kernel, to be with it or without.
STOCK = ("linux-image-cloud-amd64", "linux-headers-cloud-amd64", "initramfs-tools")
CHECKOUT = "vagrant"  # folder of the checkout in the VM
WHEELS = "tmp/wheels"
OWN_WHEEL = "usr/share/mltcp"  # the folder of the testbed's wheel, whose kernel `provision.sh` uses
REQUIREMENTS = "tools/requirements.txt"
PARTS = ("libvirt.box", "manifest.txt", "vmlinuz", "initrd.img")
# Files of the checkout that the environment in the box uses.
PACKAGES = ("testbed", "topologies", "workloads", "analysis")
KERNELS = ("custom", "stock")


def build(which: str, source: Path | None, say: Say) -> Path:
    """Build the box with the kernel ``which`` (one of `KERNELS`); the path of its ``box.json``."""
    suite = _suite()
    check_tools(TOOLS, "the box")
    entry = vm_kernel.cache() / "box" / f"{suite}-{which}"
    with disk_errors(entry):
        entry.mkdir(parents=True, exist_ok=True)
    packages = vm_kernel.ensure(source, say) if which == "custom" else None
    with locked(entry / "lock", lambda: say("another build is in progress; waiting for it")):
        check_space(entry, SPACE_BYTES)
        with tempfile.TemporaryDirectory(prefix="work-", dir=entry) as folder, disk_errors(entry):
            work = Path(folder)
            _build(work, suite, packages, say)
            for name in PARTS:
                (entry / name).unlink(missing_ok=True)
                if (work / name).exists():
                    os.replace(work / name, entry / name)
            _describe(entry, f"mltcp/{suite}-{which}")
    return entry / "box.json"


def _build(work: Path, suite: str, packages: Path | None, say: Say) -> None:
    begun = time.monotonic()
    say("the testbed's Python packages")
    wheels = _wheels(work)
    say(f"Debian {suite}")
    overlay = _overlay(work, wheels, image.own_wheel(work), packages)
    _root(work, suite, packages, overlay)
    say("the disk")
    _disk(work)
    metadata = {"provider": "libvirt", "format": "qcow2", "virtual_size": DISK_GB}
    (work / "metadata.json").write_text(json.dumps(metadata) + "\n")
    with tarfile.open(work / "libvirt.box", "w") as tar:
        for name in ("metadata.json", "manifest.txt", "box.img"):
            _add(tar, work / name, name)
    say(f"box built in {time.monotonic() - begun:.0f} s")


def _suite() -> str:
    if platform.machine() != "x86_64":
        raise MachineError(f"the VM is an x86_64 one; this machine is {platform.machine()}.")
    system = platform.freedesktop_os_release()
    if system.get("ID") != "debian" or "VERSION_CODENAME" not in system:
        raise MachineError(
            f"the box is built on the Debian release that it holds; this is {system.get('PRETTY_NAME', 'something else')}. "
            "Without MLTCP_BOX, `vagrant up` takes Debian's public box."
        )
    return system["VERSION_CODENAME"]


def _wheels(work: Path) -> Path:
    """The testbed's dependencies, those of its tests included, as wheels for the release's Python."""
    folder = work / "wheels"
    pip = [str(Path(ROOT) / ".venv/bin/python"), "-m", "pip"]
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    run(
        [
            *pip, "wheel", "-q", "--disable-pip-version-check", "-w", str(folder), "--require-hashes", "--no-deps",
            "--only-binary", ":all:", "-r", str(Path(ROOT) / REQUIREMENTS),
        ],
        "pip could not get the testbed's dependencies", variables=settings,
    )  # fmt: skip
    return folder


def _overlay(work: Path, wheels: Path, own: Path, packages: Path | None) -> Path:
    """A tar of all files that are no package's: `root/` and the testbed's wheel; and for as long as the box is built the kernel's packages,
    the wheels, and what of the checkout they are installed with (`vagrant up` brings all of it)."""
    overlay = work / "overlay.tar"
    with tarfile.open(overlay, "w") as tar:
        root = HERE / "root"
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name = path.relative_to(root)
            _add(tar, path, str(name), 0o440 if name.match("etc/sudoers.d/*") else 0o644)
        for file in ("pyproject.toml", "README.md", "tools/setup.sh", "tools/wheel_hook.py", REQUIREMENTS):
            _add(tar, Path(ROOT) / file, f"{CHECKOUT}/{file}", 0o755)
        for package in PACKAGES:
            for path in sorted((Path(ROOT) / package).rglob("*.py")):
                _add(tar, path, f"{CHECKOUT}/{path.relative_to(ROOT)}")
        for wheel in sorted(wheels.iterdir()):
            _add(tar, wheel, f"{WHEELS}/{wheel.name}")
        _add(tar, own, f"{OWN_WHEEL}/{own.name}")
        if packages is not None:
            for path in sorted(packages.glob("*.deb")):
                _add(tar, path, f"tmp/{path.name}")
    return overlay


def _root(work: Path, suite: str, packages: Path | None, overlay: Path) -> None:
    """``root.tar``, ``manifest.txt``, ``vmlinuz`` and, with Debian's kernel, ``initrd.img``."""
    wanted = [line for line in (HERE / "packages").read_text().split("\n") if line and not line.startswith("#")]
    own = [str(Path(ROOT) / "tools/setup.sh"), "--packages"]
    run(own, "tools/setup.sh does not tell the packages it installs", see=lambda line: wanted.append(line.strip()))
    manifest, wheels_list = work / "manifest.txt", work / "wheels.txt"
    in_root = 'chroot "$1"'
    hooks = [
        f"{in_root} useradd --create-home --shell /bin/bash vagrant",
        f"tar-in {overlay} /",
        f"{in_root} chown -R vagrant:vagrant /home/vagrant",
        f"{in_root} chmod -R go-rwx /home/vagrant/.ssh",
        # As provision.sh does, which then has nothing left to do.
        f'ls "$1/{WHEELS}" > {wheels_list}',
        f"{in_root} chown -R vagrant:vagrant /{CHECKOUT}",
        f"{in_root} runuser -u vagrant -- env PIP_NO_INDEX=1 PIP_FIND_LINKS=/{WHEELS} /{CHECKOUT}/tools/setup.sh",
        f'rm -r "$1/{WHEELS}"',
        f"{in_root} systemctl enable systemd-networkd systemd-resolved ssh",
        'rm -f "$1"/etc/ssh/ssh_host_*',
    ]
    if packages is not None:
        hooks += [
            f"{in_root} sh -c 'dpkg -i /tmp/linux-*.deb && rm /tmp/linux-*.deb'",
            # So that provision.sh does not build the modules of the kernel's package again.
            f'mkdir -p "$1/var/lib/mltcp" && echo {modules_digest()} > "$1/var/lib/mltcp/modules-$(ls "$1/lib/modules")"',
        ]
    else:
        wanted += STOCK
    hooks += [
        f"{in_root} dpkg-query -W -f '${{Package}} ${{Version}} ${{Architecture}}\\n' > {manifest}",
        f"cat {wheels_list} >> {manifest}",
        f'cp -L "$1"/boot/vmlinuz-* {work}/vmlinuz',
        f'if ls "$1"/boot/initrd.img-* 2>/dev/null; then cp -L "$1"/boot/initrd.img-* {work}/initrd.img; fi',
    ]
    command = [
        "mmdebstrap", "--variant=minbase", "--architectures=amd64", f"--include={','.join(dict.fromkeys(wanted))}",
        *(f"--customize-hook={hook}" for hook in hooks), suite, str(work / "root.tar"),
    ]  # fmt: skip
    run(command, f"mmdebstrap could not make Debian {suite}", variables={"SOURCE_DATE_EPOCH": str(EPOCH)})


def _disk(work: Path) -> None:
    """Make ``box.img``: an ext4 file system without partitions, as qcow2."""
    variables = {"E2FSPROGS_FAKE_TIME": str(EPOCH), "SOURCE_DATE_EPOCH": str(EPOCH), "FOLDER": str(work)}
    script = f"""
mkdir "$FOLDER/root"
tar -xf "$FOLDER/root.tar" -C "$FOLDER/root" --numeric-owner
mke2fs -q -t ext4 -U {IDENTITY} -E hash_seed={IDENTITY} -L mltcp -d "$FOLDER/root" "$FOLDER/raw" {DISK_GB}G
rm -r "$FOLDER/root" "$FOLDER/root.tar"
"""
    fake = [] if os.geteuid() == 0 else ["fakeroot", "--"]
    run([*fake, "sh", "-euc", script], "the disk of the box could not be made", variables=variables)
    compressed = ["-c", "-o", "compression_type=zstd"]
    run(
        ["qemu-img", "convert", *compressed, "-O", "qcow2", str(work / "raw"), str(work / "box.img")], "qemu-img failed"
    )
    (work / "raw").unlink()


def _describe(entry: Path, name: str) -> None:
    """Write ``box.json``. The version follows from the content of the box, because Vagrant identifies boxes by it."""
    box = entry / "libvirt.box"
    digest = sha256(box)
    provider = {"name": "libvirt", "url": f"file://{box}", "checksum_type": "sha256", "checksum": digest}
    version = {"version": f"{__version__}.{int(digest[:8], 16)}", "providers": [provider]}
    catalogue = {"name": name, "description": "The VM of the MLTCP testbed", "versions": [version]}
    rundir.write_text(entry / "box.json", json.dumps(catalogue, indent=1) + "\n")


def modules_digest() -> str:
    """Return the digest of the modules' sources, as `provision.sh` computes it."""
    folder = Path(ROOT) / "kernel"
    files = [*sorted(folder.glob("*.[ch]")), folder / "Kbuild"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _add(tar: tarfile.TarFile, path: Path, name: str, mode: int = 0o644) -> None:
    """Add a file without the builder's name and time."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = path.stat().st_size, mode, EPOCH
    with path.open("rb") as content:
        tar.addfile(entry, content)


def main() -> int:
    """Build the box, and print how to use it. Returns an exit code."""
    parser = argparse.ArgumentParser(description="Build a Vagrant box for libvirt from Debian's packages.")
    parser.add_argument(
        "--kernel",
        choices=KERNELS,
        default="custom",
        help="kernel of the box: the testbed's, or Debian's (default: %(default)s)",
    )
    parser.add_argument(
        "--linux-source", type=Path, metavar="PATH", help="source of the custom kernel: tarball or tree"
    )
    asked = parser.parse_args()
    try:
        catalogue = build(asked.kernel, asked.linux_source, lambda line: print(line, flush=True))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for path in sorted(path for path in catalogue.parent.iterdir() if path.name != "lock"):
        print(f"{path.stat().st_size / 1e6:7.1f} MB  {path}")
    print(f"\nMLTCP_BOX={catalogue} vagrant up")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
