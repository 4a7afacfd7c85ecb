"""Box, `vagrant up`, a run in the VM, `vagrant destroy`, from a fresh clone; and provisioning in a plain chroot.

Needs root and what `make vm-tools` installs. Half an hour where QEMU has to emulate the processor.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
URI = "qemu:///system"
MODULES = ["tcp_mltcp_reno", "tcp_mltcp_cubic", "tcp_mltcp_dctcp", "tcp_dcqcn", "tcp_mltcp_dcqcn"]
# Within the reach of an emulated processor on a machine that has other things to do.
RUN = (
    "sudo python testbed/run.py --topo dumbbell --jobs 4 --rate 5mbit --buffer 100ms --compute 3s --bytes 400kB "
    "--iterations 8 --sample-interval 50ms --cc mltcp_reno --out results/in-the-vm"
)
pytestmark = pytest.mark.timeout(5400)


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone of what is committed, with an environment of its own."""
    folder = tmp_path_factory.mktemp("clone") / "testbed"
    run("git", "clone", "--quiet", ROOT, folder)
    run("make", "setup", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def libvirt() -> Iterator[None]:
    """libvirt's daemons; ours, where nobody runs them."""
    missing = [tool for tool in ("vagrant", "virsh", "qemu-system-x86_64", "mmdebstrap") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: `make vm-tools`, then `make test-vagrant`")
    script = ROOT / "vagrant/without-systemd.sh"
    with subprocess.Popen([script, "sleep", "infinity"], start_new_session=True) as daemons:
        for _ in range(100):
            if subprocess.run(["virsh", "-c", URI, "uri"], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.1)
        yield
        os.killpg(daemons.pid, signal.SIGTERM)


def everything_of_libvirt() -> dict[str, set[str]]:
    """Domains, networks and volumes there are, and what is staged for booting."""
    listed = {
        what: set(run("virsh", "-q", "-c", URI, *arguments).split())
        for what, arguments in (
            ("domains", ("list", "--all", "--name")),
            ("networks", ("net-list", "--all", "--name")),
        )
    }
    pools = run("virsh", "-q", "-c", URI, "pool-list", "--name").split()
    volumes = {
        line.split()[0] for pool in pools for line in run("virsh", "-q", "-c", URI, "vol-list", pool).splitlines()
    }
    return {**listed, "volumes": volumes, "staged": {path.name for path in Path("/var/tmp").glob("mltcp-vm-*")}}


@dataclass(frozen=True)
class Machine:
    """A VM that is up."""

    checkout: Path
    env: dict[str, str]
    box: str

    def vagrant(self, *arguments: str) -> str:
        return run("vagrant", *arguments, cwd=self.checkout, env=self.env)

    def ssh(self, command: str) -> str:
        return self.vagrant("ssh", "--no-tty", "-c", command)


@pytest.fixture(scope="module", params=["custom", "stock"])
def vm(
    request: pytest.FixtureRequest, clone: Path, libvirt: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """Up, with one of the two kernels; destroyed at the end, and then nothing may be left."""
    before = everything_of_libvirt()
    made = run("make", "box", f"BOX={request.param}", cwd=clone)
    home = tmp_path_factory.mktemp("vagrant")
    box = made.split("MLTCP_BOX=")[1].split()[0]
    env = {**os.environ, "VAGRANT_HOME": str(home), "MLTCP_BOX": box, "VAGRANT_NO_COLOR": "1"}
    machine = Machine(clone, env, request.param)
    try:
        machine.vagrant("up", "--provider=libvirt", "--no-tty")
        yield machine
    finally:
        machine.vagrant("destroy", "-f")
        # The box itself stays in libvirt's pool until it is deleted there; docs/how-to/vm.md.
        catalogue = json.loads(Path(box).read_text())
        volume = f"{catalogue['name'].replace('/', '-VAGRANTSLASH-')}_vagrant_box_image_{catalogue['versions'][0]['version']}"
        for name in everything_of_libvirt()["volumes"] - before["volumes"]:
            if name.startswith(volume):
                run("virsh", "-c", URI, "vol-delete", name, "default")
    assert everything_of_libvirt() == before


def emulated(vm: Machine) -> bool:
    return "type='qemu'" in run("virsh", "-c", URI, "dumpxml", f"{vm.checkout.name}_default")


def test_a_run_in_the_vm(vm: Machine) -> None:
    """As typed after `vagrant ssh`: the folder, `python` and the modules are the right ones."""
    assert vm.ssh("pwd").strip() == "/vagrant"
    said = vm.ssh(f"{RUN} || [ $? -eq 4 ]")
    summary = json.loads(vm.ssh("cat results/in-the-vm/*/summary.json"))
    (result,) = summary["results"]
    assert (result["system"], result["jobs"], result["iterations"]) == ("mltcp_reno", 4, 8), said
    rows = json.loads(vm.ssh("cat results/in-the-vm/*/mltcp_reno/1/verdict.json"))["invariants"]
    settled = {row["id"]: row["status"] for row in rows if row["id"] in ("I1", "I9")}  # which no clock spoils
    assert settled == {"I1": "ok", "I9": "ok"}, said
    manifest = json.loads(vm.ssh("cat results/in-the-vm/*/mltcp_reno/1/manifest.json"))
    commit = run("git", "rev-parse", "HEAD", cwd=vm.checkout).strip()
    assert manifest["git_commit"] == commit
    assert "module" in json.dumps(manifest)
    if summary["verdict"] == "invalid":
        assert emulated(vm), said
        pytest.skip("an emulated processor cannot keep up with the clock: the run is invalid, and says so")
    # No link is faster than it is.
    assert 0.98 * result["ideal_s"] < result["isolated_s"] and result["mean_s"] < 3 * result["ideal_s"], said


def test_virtual_time_in_the_vm_compiles_nothing_and_gives_the_same_bytes(vm: Machine) -> None:
    """The box has the wheel, and the wheel the kernel."""
    asked = "--on uml --topo dumbbell --jobs 1 --iterations 2 --compute 20ms --bytes 100kB --rate 100mbit --cc mltcp_reno --isolated-runs none"
    digest = "cat */mltcp_reno/1/iterations.csv | sha256sum"
    said = vm.ssh(f".venv/bin/python testbed/run.py {asked} --out /tmp/uml")
    assert "objects compiled" not in said
    run(vm.checkout / ".venv/bin/python", "testbed/run.py", *asked.split(), "--out", "here", cwd=vm.checkout)
    assert vm.ssh(f"cd /tmp/uml && {digest}").split() == run("sh", "-c", digest, cwd=vm.checkout / "here").split()


REPRODUCE = "make reproduce FIGURE=concept QUICK=1"


def test_reproduce_with_the_vm_up_and_inside_it(vm: Machine) -> None:
    """Both in virtual time where the processor is emulated, because it keeps up with no clock."""
    there = (
        "cat claims.csv results/quick/concept/summary.json results/*/quick/concept/summary.json 2> /dev/null || true"
    )
    outside = run(*REPRODUCE.split(), cwd=vm.checkout, env=vm.env)
    inside = vm.ssh(REPRODUCE)
    for said, found in ((outside, run("sh", "-c", there, cwd=vm.checkout)), (inside, vm.ssh(there))):
        assert re.search(r"^mltcp-lines-own-file,.*,reproduced,", found, re.MULTILINE), said
        assert '"concept"' in found, said


def test_the_kernel(vm: Machine) -> None:
    release = vm.ssh("uname -r").strip()
    assert release.endswith(("-mltcp", "-cloud-amd64"))
    queues = ["netem", "tbf", "red", "fq", "htb", "prio", "fq_codel"]
    made = [
        f"sudo ip link add d-{queue} type dummy && sudo tc qdisc add dev d-{queue} root {queue}" for queue in queues
    ]
    arguments = {"tbf": " rate 1mbit burst 10kb latency 50ms", "red": " limit 400000 avpkt 1000"}
    vm.ssh(" && ".join(line + arguments.get(queue, "") for line, queue in zip(made, queues, strict=True)))
    vm.ssh(" && ".join(f"sudo ip link del d-{queue}" for queue in queues))
    if release.endswith("-mltcp"):
        assert "CONFIG_HZ=1000" in vm.ssh("zcat /proc/config.gz")
        vm.ssh("test -s /sys/kernel/btf/vmlinux")


def test_modules_load_run_and_unload(vm: Machine) -> None:
    assert set(MODULES) <= {line.split()[0] for line in vm.ssh("/usr/sbin/lsmod").splitlines() if line.strip()}
    assert "slope:" in vm.ssh("/usr/sbin/modinfo -F parm tcp_mltcp_reno")
    vm.ssh("sudo modprobe -r " + " ".join(MODULES))
    assert "mltcp" not in vm.ssh("cat /proc/sys/net/ipv4/tcp_available_congestion_control")
    if vm.ssh("uname -r").strip().endswith("-mltcp"):  # new enough for eBPF, too
        assert "mltcp_reno as eBPF" in vm.ssh("COLUMNS=200 sudo -E python -m testbed doctor")
    vm.ssh("sudo modprobe tcp_mltcp_cubic slope=2048")
    assert vm.ssh("cat /proc/sys/net/mltcp_cubic/slope").strip() == "2048"
    vm.ssh("sudo modprobe -r tcp_mltcp_cubic && sudo systemctl restart systemd-modules-load")
    assert all(name in vm.ssh("cat /proc/sys/net/ipv4/tcp_available_congestion_control")
               for name in ("mltcp_reno", "mltcp_cubic", "mltcp_dctcp", "dcqcn", "mltcp_dcqcn"))  # fmt: skip


def test_provisioning_twice_changes_nothing(vm: Machine) -> None:
    state = "stat -c '%Y %n' .venv/installed-for /etc/modules-load.d/mltcp.conf; cat /var/lib/mltcp/*"
    before = vm.ssh(state).splitlines()
    vm.vagrant("provision")
    after = vm.ssh(state).splitlines()
    assert before[0] == after[0] and before[2:] == after[2:]


def test_dkms_builds_for_the_running_kernel(vm: Machine) -> None:
    """Our own box has the modules in its kernel's package: a checkout with others builds them against its headers."""
    vm.ssh("sudo rm /var/lib/mltcp/modules-$(uname -r)")
    assert "building the congestion controls" in vm.vagrant("provision", "--provision-with", "testbed")
    assert "dkms" in vm.ssh("/usr/sbin/modinfo -n tcp_mltcp_reno")
    assert vm.ssh("/usr/sbin/modinfo -F vermagic tcp_mltcp_reno").split()[0] == vm.ssh("uname -r").strip()
    assert set(MODULES) <= {line.split()[0] for line in vm.ssh("/usr/sbin/lsmod").splitlines() if line.strip()}


# -- provisioning alone, at the machine's own speed ----------------------------------


@pytest.fixture
def chroot(tmp_path: Path, clone: Path) -> Iterator[Callable[..., str]]:
    """Debian's minimum with the headers of its stock kernel, and the checkout in it."""
    root = tmp_path / "root"
    include = "linux-headers-cloud-amd64,sudo,ca-certificates,kmod,git"
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    run("mmdebstrap", "--variant=minbase", f"--include={include}", "--skip=output/dev", suite, root)
    # Python's packages come from here: this machine may reach PyPI in a way that the chroot does not know.
    pip: list[str | Path] = [clone / ".venv/bin/python", "-m", "pip", "download", "-q", "-d", root / "wheels"]
    run(*pip, "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", clone / "tools/requirements.txt")
    run("git", "clone", "--quiet", "--no-hardlinks", clone, root / "vagrant")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/sudoers.d/vagrant").write_text("vagrant ALL=(ALL) NOPASSWD: ALL\n")
    inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"]
    mounts = f"mount --bind /dev {root}/dev; mount -t proc proc {root}/proc; mount -t tmpfs tmpfs {root}/tmp; "
    run("chroot", root, "useradd", "--create-home", "vagrant")
    run("chroot", root, "chown", "-R", "vagrant:vagrant", "/vagrant")

    def enter(*command: str, **variables: str) -> str:
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
        settings = [f"{key}={value}" for key, value in variables.items()]
        return run(*inside, mounts + shlex.join(["chroot", str(root), "env", *settings, *command]))

    yield enter


def test_provisioning_builds_the_modules_for_the_stock_kernel(chroot: Callable[..., str]) -> None:
    release = chroot("sh", "-c", "basename /lib/modules/*").strip()
    said = chroot("/vagrant/vagrant/provision.sh", "testbed", MLTCP_RELEASE=release)
    assert f"ready: Linux {release}" in said
    for module in MODULES:
        assert chroot("modinfo", "-k", release, "-F", "parm", module)
        assert f"{release} " in chroot("modinfo", "-k", release, "-F", "vermagic", module)
    # Nothing is left to do the second time.
    said = chroot("/vagrant/vagrant/provision.sh", "testbed", MLTCP_RELEASE=release)
    assert "building" not in said and "installing" not in said
    # A changed source is built anew, and only the new one is left.
    digest = ("sh", "-c", f"cat $(modinfo -k {release} -n tcp_mltcp_reno) | sha256sum")
    before = chroot(*digest)
    chroot("sed", "-i", "/^CC_MODULE(/s/MLTCP-Reno:/changed &/", "/vagrant/kernel/tcp_mltcp_reno.c")
    assert "building" in chroot("/vagrant/vagrant/provision.sh", "testbed", MLTCP_RELEASE=release)
    assert chroot(*digest) != before
