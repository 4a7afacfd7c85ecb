#!/bin/sh
# Prepare a Debian machine for the testbed. As root, twice on a public box:
#   provision.sh kernel    a kernel with headers, where the running one has none (then it must boot)
#   provision.sh testbed   system packages, Python environment, and the modules, now and at each boot
# Existing parts stay unchanged. The checkout is /vagrant (MLTCP_CHECKOUT), and belongs to
# the user vagrant (MLTCP_USER); the modules are for the running kernel (MLTCP_RELEASE).
set -eu
umask 022
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
PATH=/usr/sbin:/usr/bin:/sbin:/bin

checkout=${MLTCP_CHECKOUT:-/vagrant}
user=${MLTCP_USER:-vagrant}
release=${MLTCP_RELEASE:-$(uname -r)}
state=/var/lib/mltcp
rebuilt=
modules=$(cd "$checkout/kernel" && printf '%s\n' tcp_*.c | sed 's/\.c$//')

as_user() {
	runuser -u "$user" -- "$@"
}

install_packages() {
	apt-get -q update
	apt-get -qy install --no-install-recommends "$@"
}

kernel() {
	[ -e "/lib/modules/$release/build" ] && return
	install_packages dkms
	# Debian keeps the headers of its newest kernel only.
	apt-get -qy install --no-install-recommends "linux-headers-$release" && return
	echo "no headers for Linux $release: installing the newest kernel with its own"
	install_packages linux-image-amd64 linux-headers-amd64
}

# Digest of the sources; vagrant/box/box.py computes the same for the sources of the box's kernel.
digest() {
	cat "$checkout"/kernel/*.[ch] "$checkout/kernel/Kbuild" | sha256sum | cut -d ' ' -f 1
}

# Runs in virtual time then compile no kernel. The wheel is the checkout's (docs/how-to/install.md), or the box's.
use_wheel() {
	home=$(getent passwd "$user" | cut -d : -f 6)
	for wheel in "$checkout"/dist/mltcp_testbed-*_x86_64.whl /usr/share/mltcp/mltcp_testbed-*_x86_64.whl; do
		[ -e "$wheel" ] || continue
		as_user env HOME="$home" "$checkout/.venv/bin/python" -m testbed kernel --if-missing --wheel "$wheel" && return
	done
	echo "no wheel with a kernel of these sources: the first run in virtual time compiles one"
}

build_modules() {
	if [ "$(cat "$state/modules-$release" 2>/dev/null)" = "$(digest)" ]; then
		return
	fi
	if [ ! -e "/lib/modules/$release/build" ]; then
		echo "Linux $release has no headers here: /lib/modules/$release/build is missing. Boot a kernel that has" \
			"them (vagrant reload), or install them." >&2
		exit 3
	fi
	command -v dkms >/dev/null || install_packages dkms
	name=$(sed -n 's/^PACKAGE_NAME="\(.*\)"/\1/p' "$checkout/kernel/dkms.conf")
	version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$checkout/kernel/dkms.conf")
	echo "building the congestion controls for Linux $release"
	dkms remove "$name/$version" --all >/dev/null 2>&1 || true
	rm -rf "/usr/src/$name-$version"
	mkdir "/usr/src/$name-$version"
	cp "$checkout"/kernel/*.[ch] "$checkout/kernel/Kbuild" "$checkout/kernel/dkms.conf" "/usr/src/$name-$version"
	log=$(mktemp)
	if ! dkms install "$name/$version" -k "$release" --force >"$log" 2>&1; then
		cat "$log" "/var/lib/dkms/$name/$version/build/make.log" >&2 || true
		exit 1
	fi
	rm "$log"
	rebuilt=yes
	mkdir -p $state
	digest >"$state/modules-$release"
}

load_modules() {
	mkdir -p /etc/modules-load.d
	printf '%s\n' "$modules" | tr ' ' '\n' >/etc/modules-load.d/mltcp.conf
	if [ "$release" != "$(uname -r)" ]; then
		echo "Linux $release is not the one that runs: its modules are loaded when it boots"
		return
	fi
	for module in $modules; do
		if [ "$rebuilt" ] && [ -e "/sys/module/$module" ] && ! modprobe -r "$module"; then
			echo "$module is in use: the one loaded is not the one just built. End what uses it, or vagrant reload." >&2
			exit 1
		fi
	done
	# shellcheck disable=SC2086 # a list
	modprobe -a $modules
}

testbed() {
	as_user "$checkout/tools/setup.sh"
	use_wheel
	build_modules
	load_modules
	# Runs that name no backend go to this machine's kernel (testbed/spec/backend_names.py).
	mkdir -p $state
	echo "$release" >$state/vm
	# The paths in the documentation are the checkout's.
	cat >/etc/profile.d/mltcp.sh <<-END
		if [ "\$USER" = $user ] && [ -d "$checkout" ]; then cd "$checkout" || true; fi
	END
	echo "ready: Linux $release with $(printf '%s' "$modules" | wc -w) congestion controls; sudo python testbed/run.py --topo dumbbell --jobs 4"
}

case ${1-} in
kernel) kernel ;;
testbed) testbed ;;
*)
	echo "usage: provision.sh kernel|testbed" >&2
	exit 2
	;;
esac
