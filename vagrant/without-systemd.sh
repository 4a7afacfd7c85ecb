#!/bin/sh
# vagrant/without-systemd.sh COMMAND…: libvirt for one command, as root, where no service manager
# runs it (a container, a CI machine). The daemons that this starts end with the command; a running
# VM continues without them.
set -eu
[ $# -gt 0 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "libvirt's daemons are started by root: use sudo." >&2; exit 3; }

logs=$(mktemp -d)
daemons=
stop() {
	for pid in $daemons; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

daemon() {
	"$@" >"$logs/$1" 2>&1 </dev/null &
	daemons="$! $daemons"
}

# Wait until the daemon named by the first argument answers.
await() {
	for _ in $(seq 100); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.1
	done
	echo "no answer: $*" >&2
	tail -n 5 "$logs"/* >&2
	exit 1
}

bus='dbus-send --system --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames'
# shellcheck disable=SC2086 # a command
if ! $bus >/dev/null 2>&1; then
	mkdir -p /run/dbus
	rm -f /run/dbus/system_bus_socket
	daemon dbus-daemon --system --nofork --nopidfile
	await $bus
fi
if ! virsh -c qemu:///system uri >/dev/null 2>&1; then
	daemon virtlogd
	daemon libvirtd
	await virsh -c qemu:///system uri
fi
"$@"
