#!/usr/bin/env bash
# fake-amd-sysfs.sh - run a command that sees simulated AMD GPUs.
#
# ROCm SMI finds GPUs by reading files under /sys only; it opens no device node
# to enumerate or to sample. This script has such a tree written by rocmfake (Go,
# next to this file: the simulation that the tests use), puts it over /sys in a
# private mount namespace, and runs a command there. Nothing outside that
# namespace changes.
#
#   fake-amd-sysfs.sh [options] -- command [arg ...]
#
#   -m MODEL   mi250x | mi300x | rx7900 | apu                     (default mi250x)
#   -n N       number of GPUs, 1..16; of an MI250X dies           (default 4)
#   -f FMT     gpu_metrics layout 1.0-1.9 | 2.0-2.4 | 3.0 (default: the model's)
#   -x MODE    compute partition of an MI300X: SPX | DPX | QPX | CPX (default SPX)
#   -N MODE    memory partition of an MI300X: NPS1 | NPS4         (default NPS1)
#   -i MS      change the values every MS milliseconds, 0 = frozen (default 100)
#   -b         leave out card0, the non-AMD display adapter of a server's BMC
#   -D         also fake /dev/kfd and /dev/dri/* as empty regular files, for code
#              that looks for the device nodes (ROCm SMI does not need them)
#   -s         keep the machine's /dev/shm, where ROCm SMI has one mutex a device;
#              otherwise the command gets an empty one of its own
#   -t DIR     build the tree in DIR and keep it (default: temporary, removed)
#   -u         enter a user namespace first (no root needed, where the kernel
#              allows unprivileged user namespaces)
#   -c         only create the tree and print its path
#
# The command gets FAKE_AMD_SYS=<tree>: a test may write any file there and the
# library will read it on its next call. FAKE_AMD_MOVER is the process that moves
# the values: they do not move from kill -STOP to kill -CONT. Ways to misbehave on
# purpose:
#   * move a FIFO over a file (mkfifo f && mv f .../temp2_input): the read blocks
#     until something writes it (a hung driver), or takes as long as the writer
#     takes (a slow one);
#   * move the directory of a GPU away, and back;
#   * hold one device's mutex: the library exports rsmi_test_sleep(device, seconds),
#     under its C++ name _Z15rsmi_test_sleepjj.
#
# Needs: root, or CAP_SYS_ADMIN in the mount namespace, or -u; bash >= 4.4,
# util-linux (unshare, mount, setpriv), coreutils; Go, or in FAKE_AMD_WRITER the
# path of a rocmfake that was built before. Not a container's default seccomp
# profile; there, give a C program a copy of the library whose paths are patched
# (smitest does), and this project's reader a root directory (Tree does).
set -euo pipefail

args=() tree='' userns=0 create=0 shm=0 devs=0
while getopts 'n:m:f:x:N:i:bDst:uc' o; do
  case $o in
    n) args+=(--gpus "$OPTARG") ;;
    m) args+=(--model "$OPTARG") ;;
    f) args+=(--metrics "$OPTARG") ;;
    x) args+=(--partition "$OPTARG") ;;
    N) args+=(--memory "$OPTARG") ;;
    i) args+=(--every "${OPTARG}ms") ;;
    b) args+=(--no-bmc) ;;
    D) devs=1 ;;
    s) shm=1 ;;
    t) tree=$OPTARG ;;
    u) userns=1 ;;
    c) create=1 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
((create || $# > 0)) || { echo 'no command given' >&2; exit 2; }

# ----------------------------------------------------- have the tree written
if [[ -n $tree ]]; then
  mkdir -p "$tree"
  tree=$(cd "$tree" && pwd -P)
  trap 'rm -f "$work"' EXIT
else
  tree=$(mktemp -d "${TMPDIR:-/tmp}/fake-amd.XXXXXX")
  args+=(--remove)
  trap 'rm -rf --one-file-system -- "$tree"' EXIT
fi
args+=(--dir "$tree")
work=$tree/rocmfake
if [[ -n ${FAKE_AMD_WRITER:-} ]]; then
  cp -- "$FAKE_AMD_WRITER" "$work"
else
  CGO_ENABLED=0 go build -C "$(dirname "${BASH_SOURCE[0]}")/cmd/rocmfake" -buildvcs=false -o "$work" .
fi
((create)) || args+=(--stay)

# It says where the tree is once all of it is there, and keeps moving the values
# until the command, whose PID is that of this script, is gone, also if a user
# has stopped it by then; then it removes a temporary tree.
exec {ready}< <(exec setpriv --pdeathsig CONT "$work" "${args[@]}" </dev/null 2>"$tree/log")
mover=$!
read -r sys <&"$ready" || { cat "$tree/log" >&2; exit 2; }
exec {ready}<&-
rm -f "$work"
chmod -R a+rX "$sys" # the command may become another user, and /sys is for all
if ((create)); then
  trap - EXIT
  echo "$sys"
  exit 0
fi

# ------------------------------------------------- put the tree over /sys, run
# The rest of the real /sys stays reachable: it is bound whole at .real, and the
# tree links to it wherever it has nothing of its own.
farm() { # farm DIR: link each entry of the real /sys/DIR that the tree lacks
  local e up=/$1 missing=()
  up=${up//[^\/]/} up=${up//\//..\/}
  for e in "/sys/$1"/*; do
    [[ -e $sys/$1/${e##*/} || -L $sys/$1/${e##*/} ]] || missing+=("$up.real/${e#/sys/}")
  done
  ((${#missing[@]} == 0)) || ln -s -t "$sys/$1" -- "${missing[@]}"
}
shopt -s nullglob dotglob
dev=
if ((devs)); then
  dev=$tree/dev
  mkdir -p "$dev/dri"
  : >"$dev/kfd"
  for e in "$sys"/class/drm/*; do : >"$dev/dri/${e##*/}"; done
fi
mkdir -p "$sys/.real"
for e in /sys/*; do
  [[ -e $sys/${e##*/} ]] || ln -s ".real/${e##*/}" "$sys/${e##*/}"
done
for e in class class/hwmon devices devices/virtual devices/platform module bus bus/pci bus/pci/devices bus/pci/drivers; do
  [[ ! -d $sys/$e ]] || farm "$e"
done

export FAKE_AMD_SYS=$sys FAKE_AMD_MOVER=$mover
ns=(unshare --mount --propagation private)
((!userns)) || ns=(unshare --user --map-root-user --mount --propagation private)
cat >"$tree/enter" <<'END'
set -e
t=$1 shm=$2 dev=$3; shift 3
mount --rbind /sys "$t/.real"
mount --rbind "$t" /sys
((shm)) || mount -t tmpfs -o mode=1777 tmpfs /dev/shm # the library's mutexes
if [[ -n $dev ]]; then # the same farm of links as for /sys
  mkdir -p "$dev/.real"
  mount --rbind /dev "$dev/.real"
  for e in /dev/*; do [[ -e $dev/${e##*/} ]] || ln -s ".real/${e##*/}" "$dev/${e##*/}"; done
  mount --rbind "$dev" /dev
fi
exec "$@"
END
exec "${ns[@]}" -- bash "$tree/enter" "$sys" "$shm" "$dev" "$@"
