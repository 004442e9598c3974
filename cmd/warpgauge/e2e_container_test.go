package main_test

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// contained runs the binary in a container as a kubelet would, built from a mount namespace and
// chroot: only the image's paths, read-only.
type contained struct {
	env        map[string]string
	mounts     map[string]string // container path to host path, mounted read-only
	writable   []string          // mounts that are writable
	listens    bool              // env and args set the address
	args       []string
	directory  string // working directory, / by default
	user       int64
	restricted bool // no capabilities, no new privileges; otherwise privileged
}

// image builds the file system and runs a command in it. Arguments: $1 an empty directory, $2 the
// binary, $3 the repository; SOURCE=TARGET until "--"; the command.
const image = `
root=$1 exe=$2 repository=$3; shift 3
mount -t tmpfs image "$root"
cd "$root"
mkdir -p proc sys dev tmp root usr/bin usr/lib etc/dcgm-exporter etc/warpgauge
chmod 755 .
for d in /usr/lib /usr/lib64 /lib /lib64 /proc /sys /dev; do
	[ -e "$d" ] || continue
	if [ -L "$d" ]; then cp -P "$d" ".$d"; else mkdir -p ".$d"; mount --rbind "$d" ".$d"; fi
done
cp "$repository"/etc/*.csv etc/dcgm-exporter
cp "$repository"/etc/*.csv etc/warpgauge
for f in "$exe=usr/bin/warpgauge" "$(command -v env)=usr/bin/env" "$(command -v setpriv)=usr/bin/setpriv"; do
	touch "${f#*=}"
	mount --bind "${f%%=*}" "${f#*=}"
done
while [ "$1" != -- ]; do
	source=${1%%=*} target=.${1#*=}; shift
	if [ -d "$source" ]; then mkdir -p "${target%:rw}"; else mkdir -p "$(dirname "$target")"; touch "$target"; fi
	mount --bind "$source" "${target%:rw}"
	[ "$target" != "${target%:rw}" ] || mount -o remount,bind,ro "$target"
done
shift
mount -o remount,ro "$root"
exec chroot "$root" "$@"
`

// run starts the container on a free loopback port and waits until it serves.
func (c contained) run(t *testing.T, exe string) *exporter {
	t.Helper()
	repository := testkit.Get(filepath.Abs("../.."))(t)
	args := []string{"--mount", "--propagation=private", "sh", "-eu", file(t, "image.sh", image), t.TempDir(), exe, repository}
	for _, target := range slices.Sorted(maps.Keys(c.mounts)) {
		options := ""
		if slices.Contains(c.writable, target) {
			options = ":rw"
		}
		args = append(args, c.mounts[target]+"="+target+options)
	}
	id := fmt.Sprint(c.user)
	args = append(args, "--", "/usr/bin/setpriv", "--reuid="+id, "--regid="+id, "--clear-groups")
	if c.restricted {
		args = append(args, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all")
	}
	args = append(args, "/usr/bin/env", "-i", "--chdir=/"+c.directory)
	if !c.listens {
		args = append(args, "DCGM_EXPORTER_LISTEN=127.0.0.1:0")
	}
	for _, name := range slices.Sorted(maps.Keys(c.env)) {
		if name != "DCGM_EXPORTER_LISTEN" {
			args = append(args, name+"="+c.env[name])
		}
	}
	args = append(append(args, "/usr/bin/warpgauge"), c.args...)
	return serving(t, append([]string{programtest.Find(t, "unshare")}, args...)...)
}

// mountNamespace skips the test where mounting is not permitted.
func mountNamespace(t *testing.T) {
	t.Helper()
	unshare := programtest.Find(t, "unshare")
	if out, err := exec.Command(unshare, "--mount", "--propagation=private", "mount", "-t", "tmpfs", "try", t.TempDir()).CombinedOutput(); err != nil {
		programtest.Missing(t, "unshare", "no mount namespace can be had: %v: %s", err, out)
	}
}
