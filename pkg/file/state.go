package file

import (
	"os"
	"path/filepath"
	"strings"
)

// BootID returns the kernel's id of the current boot, or "" if it is unknown.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) > 64 {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// StateDirectory returns a folder in the service's state directory from systemd; "" if there is none.
func StateDirectory(lookup func(string) (string, bool), name string) string {
	state, _ := lookup("STATE_DIRECTORY")
	if state, _, _ = strings.Cut(state, ":"); !filepath.IsAbs(state) { // systemd may pass several
		return ""
	}
	return filepath.Join(state, name)
}
