#!/bin/sh
# Install the requirements of the testbed: system packages (where apt exists), `python`, and the
# checkout's environment in .venv. Existing parts stay unchanged, so that a second run takes
# seconds. `--packages` only prints the names of Debian's packages; `--python` makes only the
# environment: without root and apt, if Python has its `venv`.
set -eu
cd "$(dirname "$0")/.."
umask 022

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# command or file to look for : Debian/Ubuntu package that has it
needs='
clang:clang
/usr/include/bpf/bpf_helpers.h:libbpf-dev
/usr/include/stdio.h:libc6-dev
gcc:gcc
make:make
flex:flex
bison:bison
bc:bc
xz:xz-utils
perl:perl
mnexec:mininet
ping:iputils-ping
ip:iproute2
ethtool:ethtool
iperf3:iperf3
sparse:sparse
setpriv:util-linux
sudo:sudo
git:git
python3:python3
python:python-is-python3
'
if [ "${1-}" = --packages ]; then
	for need in $needs; do echo "${need##*:}"; done
	echo python3-venv
	exit
fi
# Tests of other machines (`--on ssh:…`) need an sshd. Where systemd runs, installing it starts it, too: left to you.
[ -d /run/systemd/system ] || needs="$needs sshd:openssh-server"
# Print the missing ones of `needs`; `--python` needs none of them.
missing() {
	for need in $needs; do
		what=${need%%:*}
		[ "$1" = --python ] || [ -e "$what" ] || command -v "$what" >/dev/null || printf ' %s' "${need##*:}"
	done
	# `venv` and pip belong to Python, but are packages of their own on Debian.
	python3 -c 'import venv, ensurepip' 2>/dev/null || printf ' python3-venv'
}
missing=$(missing "${1-}")
# Optional: a tool to inspect loaded eBPF programs (not a package in every release), and one with which tests compare packets.
optional=
command -v bpftool >/dev/null || optional=bpftool
command -v tshark >/dev/null || optional="$optional tshark"

if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null; then
		echo "These are missing; install what your distribution calls them:" >&2
		for package in $missing; do echo "  $package" >&2; done
		exit 3
	fi
	as_root=
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null || { echo "Run as root, once: apt-get install$missing" >&2; exit 3; }
		as_root=sudo
	fi
	echo "installing system packages:$missing"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	# What apt says of itself is one thing, what is there afterwards another: an index that is out of date may do.
	# shellcheck disable=SC2086 # the lists are meant to be split
	{
		$as_root apt-get -q update || true
		$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qy install --no-install-recommends $missing || true
		[ -z "$optional" ] || $as_root apt-get -qy install --no-install-recommends $optional || true
	} >"$log" 2>&1
	still=$(missing "${1-}")
	if [ -n "$still" ]; then
		tail -n 20 "$log" >&2
		echo "not installed, and needed:$still (what apt-get said is above). Run as root, once: apt-get install$still" >&2
		exit 3
	fi
fi

# The system's Python: other users could not read one in a home directory.
python=
for candidate in /usr/bin/python3 /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11; do
	if [ -x "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
		python=$candidate
		break
	fi
done
[ -n "$python" ] || { echo "Python 3.11 or newer is needed in /usr/bin" >&2; exit 3; }

stamp=.venv/installed-for
wanted=$("$python" --version; cksum <pyproject.toml; cksum <tools/requirements.txt; pwd)
if [ "$(cat $stamp 2>/dev/null || true)" != "$wanted" ]; then
	echo "installing Python packages into .venv"
	"$python" -m venv --clear .venv
	install() { .venv/bin/pip install -qq --disable-pip-version-check --root-user-action=ignore "$@"; }
	# Each file is held against its hash; setup.py of no package runs, and no build fetches anything.
	pinned() { install --require-hashes --no-deps --only-binary :all: -r tools/requirements.txt && install --no-deps --no-build-isolation -e .; }
	said=$(mktemp)
	if [ -n "${MLTCP_UNPINNED-}" ]; then
		echo "MLTCP_UNPINNED is set: installing the newest versions that fit, without hashes" >&2
		install -e '.[dev]'
	elif ! pinned 2>"$said"; then
		cat "$said" >&2
		case $(cat "$said") in
		*"DO NOT MATCH THE HASHES"*) why="the package index has another file than tools/requirements.txt names" ;;
		*) why="pip could not install the versions of tools/requirements.txt" ;;
		esac
		rm -f "$said"
		echo "Python packages: $why (pip's message is above). Only files with a known hash are installed." >&2
		echo "If you trust the index, run this again with MLTCP_UNPINNED=1 (the newest versions that fit, without hashes)." >&2
		exit 3
	fi
	rm -f "$said"
	echo "$wanted" >$stamp
fi
# Runs under sudo write no bytecode: each would compile the checkout again.
.venv/bin/python -c 'import compileall, sys
folders = "testbed", "topologies", "workloads", "analysis"
sys.exit(not all([compileall.compile_dir(folder, quiet=2) for folder in folders]))' ||
	echo "not every file of the checkout could be compiled in advance; runs start later, that is all" >&2
