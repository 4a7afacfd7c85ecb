#!/bin/sh
# Restore the testbed from this folder, without network, and run the demo.
#   ./restore [FOLDER]           from the image: its root file system, with user namespaces (or as root); needs tar and unshare
#   ./restore --wheels [FOLDER]  from the wheels: needs Python 3.11 with venv
# FOLDER (default: restored, next to this script) gets results/.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
way=image
[ "${1-}" != --wheels ] || { way=wheels; shift; }
into=${1-"$here/restored"}

cd "$here"
sha256sum --quiet --strict -c SHA256SUMS || { echo "The capsule is damaged: the files above are not those of SHA256SUMS." >&2; exit 3; }
mkdir -p "$into"
into=$(cd "$into" && pwd)

if [ $way = wheels ]; then
	python=$(command -v python3.11 || command -v python3)
	"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
		echo "The wheels are for Python 3.11, and $python is another version. ./restore without --wheels brings its own Python." >&2
		exit 3
	}
	"$python" -m venv "$into/environment"
	"$into/environment/bin/pip" install -q --disable-pip-version-check --no-index --find-links wheels wheels/mltcp_testbed-*.whl
	cd "$into"
	exec "$into/environment/bin/mltcp" demo
fi

mkdir -p "$into/unpacked" "$into/root" "$into/results"
tar -xf image/mltcp-testbed.tar -C "$into/unpacked"
# The image has one layer.
layer=$(find "$into/unpacked" -name '*.tar' ! -type l | head -n 1)
[ -n "$layer" ] || layer=$(find "$into/unpacked" -name layer.tar | head -n 1)
tar -xf "$layer" -C "$into/root" --no-same-owner --exclude='dev/*'
rm -r "$into/unpacked"
# Root of a user namespace (of this machine, if it is root already) binds what runs need, and changes into the root file system.
cat >"$into/run" <<'END'
set -eu
cd "$1"
mkdir -p root/results root/proc root/dev root/tmp
mount --bind results root/results
mount --rbind /dev root/dev
mount --rbind /proc root/proc
exec chroot root /usr/bin/env -i PATH=/opt/mltcp/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 XDG_CACHE_HOME=/tmp/cache \
	MPLCONFIGDIR=/tmp/cache/matplotlib sh -c 'cd / && exec mltcp demo'
END
if [ "$(id -u)" -eq 0 ]; then
	exec unshare --mount --propagation private sh "$into/run" "$into"
fi
exec unshare --user --map-root-user --mount sh "$into/run" "$into"
