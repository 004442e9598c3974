#!/bin/sh
# Debian says "remove" or "upgrade", RPM how many versions stay.
set -e
case "$1" in
remove | 0)
	[ -d /run/systemd/system ] || exit 0
	systemctl disable --now warpgauge || true
	;;
esac
