#!/bin/sh
# Starts the service at the first installation, restarts it after an upgrade. Where
# systemd does not run (an image, a chroot) there is nothing to do.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if systemctl is-enabled --quiet warpgauge 2>/dev/null; then
	systemctl try-restart warpgauge
else
	systemctl enable --now warpgauge || echo "warpgauge did not start: see journalctl -u warpgauge" >&2
fi
