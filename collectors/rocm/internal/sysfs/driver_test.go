package sysfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files (path → text) below a new directory and returns it. A path
// that ends in a slash becomes a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		dir := filepath.Dir(full)
		if strings.HasSuffix(path, "/") {
			dir = full
		}
		must(t, os.MkdirAll(dir, 0o750))
		if strings.HasSuffix(path, "/") {
			continue
		}
		must(t, os.WriteFile(full, []byte(text), 0o600))
	}
	return root
}

func TestDriver(t *testing.T) {
	f := func(files map[string]string, loaded bool, want string) {
		t.Helper()
		root := tree(t, files)
		what, got := New(Options{Root: root}).Driver()
		what = strings.ReplaceAll(what, root, "")
		if got != loaded || what != want {
			t.Errorf("got  %v, %s\nwant %v, %s", got, what, loaded, want)
		}
	}
	f(nil, false, "no amdgpu driver (neither /sys/class/kfd/kfd/topology nor /sys/module/amdgpu)")
	f(map[string]string{"sys/class/kfd/kfd/topology/": ""}, true,
		"amdgpu driver with /sys/class/kfd/kfd/topology")
	f(map[string]string{"sys/module/amdgpu/": "", "sys/class/drm/card1/device/vendor": "0x1002\n"}, true,
		"amdgpu driver with cards in /sys/class/drm but no /sys/class/kfd/kfd/topology")
	f(map[string]string{"sys/module/amdgpu/": "", "sys/class/drm/card0/device/vendor": "0x10de\n"}, false,
		"amdgpu driver in /sys/module/amdgpu but neither /sys/class/kfd/kfd/topology nor an AMD card in /sys/class/drm")
}
