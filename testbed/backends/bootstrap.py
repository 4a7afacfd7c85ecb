"""The first program on another machine: make space, find a Python, and continue in it as `testbed.backends.remote`.

`testbed.backends.ssh` sends this file's text and then an archive. It runs as root under Python 3.7 or newer, without
packages, in a private mount namespace. All its files are in memory, mounted in that namespace only. They disappear when
the last process in the namespace ends.

Arguments: size in bytes and SHA-256 of the archive, SOABI of the sending Python, memory in bytes for the files,
packages (JSON: modules by distribution).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
from typing import Dict, List, NoReturn, Tuple

PLACES = ("/media", "/mnt", "/srv")  # empty folders that every Linux has: something to mount on
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ".local/share/mltcp/venv"  # in the home folder of the user that logs in
PATIENCE_S = 120  # seconds of silence after which the caller counts as disconnected
OLDEST = (3, 11)
PROBE = """
import importlib.util, json, sys, sysconfig
print(json.dumps({
    "version": list(sys.version_info[:3]), "soabi": sysconfig.get_config_var("SOABI"),
    "lacks": [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None],
}))
"""


def main() -> None:
    size, digest, soabi, room, packages_json = sys.argv[2:]
    packages = json.loads(packages_json)
    signal.alarm(PATIENCE_S)
    if os.geteuid() != 0:
        fail("root is required there. Log in as root, or as a user with passwordless sudo.")
    missing = [tool for tool in ("mount", "unshare", "setpriv") if shutil.which(tool, path=PATH) is None]
    if missing:
        fail("missing there: " + ", ".join(missing) + ". Install the package util-linux.")
    python, brings = choose(soabi, packages)
    archive = received(int(size))
    if hashlib.sha256(archive).hexdigest() != digest:
        fail("the testbed arrived damaged.", 1)
    folder = mounted(room)
    try:
        unpack(archive, folder, with_packages=not brings)
    except OSError as error:
        fail("there is no room for the testbed in its memory (%s of tmpfs): %s." % (room, error.strerror or error))
    environment = {
        "PATH": PATH,
        "LC_ALL": "C.UTF-8",
        "HOME": pwd.getpwuid(0).pw_dir,
        "PYTHONPATH": folder + "/checkout",
        "PYTHONHASHSEED": "0",
        "XDG_CACHE_HOME": folder + "/cache",
        "TMPDIR": folder + "/tmp",
    }
    os.chdir("/")
    os.execve(python, [python, "-P", "-m", "testbed.backends.remote", *(packages if brings else ())], environment)


def fail(message: str, code: int = 3) -> NoReturn:
    """Report the error in the format of `testbed.linux.run_in_kernel`, and end."""
    sys.stdout.write(json.dumps({"event": "error", "code": code, "message": message}) + "\n")
    sys.stdout.flush()
    os._exit(code)


def choose(soabi: str, packages: Dict[str, str]) -> Tuple[str, bool]:
    """A Python that has all packages itself, or else one like the caller's; and which of the two."""
    matching, found = None, []
    for python in candidates():
        try:
            output = subprocess.check_output([python, "-I", "-c", PROBE, *packages.values()], stderr=subprocess.DEVNULL)
            what = json.loads(output.decode())
        except (OSError, ValueError, subprocess.CalledProcessError):
            continue
        if tuple(what["version"]) >= OLDEST and not what["lacks"]:
            return python, True
        matching = matching or (python if what["soabi"] == soabi else None)
        lacks = " without " + ", ".join(what["lacks"]) if what["lacks"] else ""
        found.append("%s is %s%s" % (python, ".".join(map(str, what["version"])), lacks))
    if matching is None:
        fail(
            "no Python there can run the testbed (%s), and packages can be sent along only to the very Python of this side (%s). "
            "Install them there, once: python3 -m venv ~/%s && ~/%s/bin/pip install %s "
            "setuptools (Python %s or newer; on Debian and Ubuntu the package python3-venv)."
            % ("; ".join(found) or "none was found", soabi, OWN, OWN, " ".join(packages), ".".join(map(str, OLDEST)))
        )
    return matching, False


def candidates() -> List[str]:
    """Pythons to try: of a provisioned VM, of the user that logged in, of the system."""
    home = pwd.getpwnam(os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name).pw_dir
    names = ["/vagrant/.venv/bin/python", os.path.join(home, OWN, "bin/python"), shutil.which("python3") or ""]
    names += [
        folder + "/python3" + minor
        for folder in ("/usr/bin", "/usr/local/bin")
        for minor in ("", ".11", ".12", ".13", ".14")
    ]
    return [name for name in dict.fromkeys(names) if os.access(name, os.X_OK)]


def received(size: int) -> bytes:
    pieces = []
    while size:
        piece = os.read(0, min(size, 1 << 20))
        if not piece:
            os._exit(1)  # the caller is gone
        signal.alarm(PATIENCE_S)
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def mounted(room: str) -> str:
    """A folder in memory that only this mount namespace has."""
    folder = next((place for place in PLACES if os.path.isdir(place)), None)
    if folder is None:
        fail("there is none of the folders " + ", ".join(PLACES) + " there; an empty one is enough.")
    command = ["mount", "-t", "tmpfs", "-o", "mode=0700,size=" + room, "mltcp", folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        fail("cannot mount memory there (a container without privileges?): " + done.stderr.decode().strip())
    return folder


def unpack(archive: bytes, folder: str, *, with_packages: bool) -> None:
    """Into ``checkout``, packages next to the testbed, so that one folder is searched for both."""
    for name in ("checkout", "cache", "tmp", "own"):
        os.mkdir(os.path.join(folder, name))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            kind, _, path = member.name.partition("/")
            if kind == "packages" and not with_packages:
                continue
            target = os.path.join(folder, "checkout", path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with open(target, "wb") as file:
                file.write(content.read())


if __name__ == "__main__":
    main()
