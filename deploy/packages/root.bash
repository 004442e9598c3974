# shellcheck shell=bash
# For the tests of packages: a copy of a root file system to install into, which is thrown away: that of
# this machine, or the one in the folder BASE. To be sourced in a mount namespace of its own, with dir, fail
# and skip.

: "${dir:?}"

# fresh_root mounts it at $dir/root, without changes. They go to $dir/changed.
fresh_root() {
	local d
	umount -R "$dir/root" 2>/dev/null || true
	rm -rf "$dir/changed" "$dir/work"
	mkdir -p "$dir/root" "$dir/changed" "$dir/work"
	mount -t overlay overlay -o "lowerdir=${BASE:-/},upperdir=$dir/changed,workdir=$dir/work" "$dir/root" 2>/dev/null ||
		skip "no overlay file system here"
	mount -t proc proc "$dir/root/proc"
	for d in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$dir/root/$d"; done
	chmod 1777 "$dir/root/tmp"
	for d in null zero full random urandom; do
		: >"$dir/root/dev/$d"
		mount --bind "/dev/$d" "$dir/root/dev/$d"
	done
	mkdir -p "$dir/root/dev/shm" "$dir/root/run/packages" "$dir/root/etc/dpkg/dpkg.cfg.d"
	echo force-unsafe-io >"$dir/root/etc/dpkg/dpkg.cfg.d/test" # the disk need not have what is thrown away
	ln -s /proc/self/fd "$dir/root/dev/fd"
	for d in older newer; do [[ ! -d $dir/$d ]] || cp -r "$dir/$d" "$dir/root/run/packages/"; done
}

# inside runs a command there; its output is shown if it fails. How one gets there is
# in enter.
enter=(chroot "$dir/root")
inside() {
	DEBIAN_FRONTEND=noninteractive "${enter[@]}" "$@" >"$dir/output" 2>&1 || { cat "$dir/output" >&2; fail "failed: $*"; }
}

# What files there are like. has FILE TEXT looks into one.
has() { grep -qF -- "$2" "$dir/root$1" || fail "$1 does not have \"$2\""; }
gone() { [[ ! -e $dir/root$1 && ! -L $dir/root$1 ]] || fail "$1 is still there"; }
there() { [[ -e $dir/root$1 || -L $dir/root$1 ]] || fail "$1 is not there"; }
# nothing_left checks that no file of ours has been added to the root file system, but for those that match a pattern.
nothing_left() {
	local f
	f=$(find "$dir/changed" \( -name '*warpgauge*' -o -name '*warpctl*' \) ! -type c -printf './%P\n' | grep -vE "${1:-^$}" || true)
	[[ -z $f ]] || fail "left behind: $f"
}
