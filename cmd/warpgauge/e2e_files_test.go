package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/hungfs"
)

// hostileFile is an unusual object in place of a file, with the expected message.
type hostileFile struct {
	name, says string
	make       func(path string) error
}

var hostile = []hostileFile{
	{"FIFO", "a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
	{"directory", "a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
	{"device", "a device", func(path string) error { return os.Symlink("/dev/zero", path) }},
	{"file of 10 GB", "too large", func(path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 10<<30)
	}},
	{"file without an end", "too large", func(path string) error { return os.Symlink("/proc/kallsyms", path) }}, // has 10 MB but reports size 0
}

// TestE2EHostileFiles: an unusual object at a configured path causes only an error that names it,
// at start, reload and stop.
func TestE2EHostileFiles(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "named")
			must(t, h.make(path))
			for _, flag := range []string{"--collectors", "--web-config-file", "--fake-spec"} {
				code, out := runToEnd(t, exe, "--address=127.0.0.1:0", "--enable-only=fake", flag+"="+path)
				if code != 1 || !strings.Contains(out, path) || !strings.Contains(out, h.says) && flag != "--web-config-file" {
					t.Errorf("start with %s: exit code %d, %q; want 1, the name of the file and %q", flag, code, out, h.says)
				}
			}
		})
	}
	t.Run("reload", func(t *testing.T) {
		t.Parallel()
		testHostileReload(t, exe)
	})
	t.Run("hung file system", func(t *testing.T) {
		t.Parallel()
		testHungList(t, exe)
	})
}

// testHostileReload replaces the list with each object in turn, and with an invalid list. Requests report each, and so does
// the file watch; the previous list stays in service.
func testHostileReload(t *testing.T, exe string) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, listA)
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, markerA)
	client := newClient(t)
	mistake := hostileFile{"list with a mistake", "gouge", func(path string) error {
		return os.WriteFile(path, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, fine\nDCGM_FI_DEV_MEM_CLOCK, gouge, not fine\n"), 0o600)
	}}
	for i, h := range append(hostile, mistake) {
		next := path + ".next"
		must(t, h.make(next))
		must(t, os.RemoveAll(path)) // rename does not replace a file with a directory
		must(t, os.Rename(next, path))
		if i == 0 {
			e.await(t, h.name+" in the metrics", is(0, "warpgauge_config_last_reload_successful"))
			e.awaitLog(t, h.says)
		}
		a := request(t, client, http.MethodPost, e.url+"/-/reload")
		a.want(t, "reload with a "+h.name, http.StatusInternalServerError)
		testkit.Has(t, "reload with a "+h.name, string(a.body), path, h.says)
		if err := count(8, markerA)(e.scrape(t, acceptText)); err != nil {
			t.Errorf("with a %s the former list is not in service: %v", h.name, err)
		}
	}
	write(t, path, listA) // the same list: only the metric changes
	e.await(t, "the list again", is(1, "warpgauge_config_last_reload_successful"))
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o600))
	e.Signal(t, syscall.SIGHUP)
	e.ends(t, syscall.SIGTERM)
}

// testHungList: the list is on a file system whose server is away. Reloads fail after some seconds,
// another list can be selected meanwhile, and the stop does not wait.
func testHungList(t *testing.T, exe string) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	must(t, os.Mkdir(mount, 0o700))
	path := filepath.Join(dir, "counters.csv")
	write(t, path, listA)
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, markerA)
	hungfs.Mount(t, mount)
	lead := func(to string) { // swaps a link, like a ConfigMap
		must(t, os.Symlink(to, path+".next"))
		must(t, os.Rename(path+".next", path))
	}
	lead(filepath.Join(mount, "counters.csv"))
	client := newClient(t)
	a := request(t, client, http.MethodPost, e.url+"/-/reload")
	a.want(t, "reload", http.StatusInternalServerError)
	testkit.Has(t, "reload", string(a.body), path, "does not answer")
	e.await(t, "the hang in the metrics, with the former list in service", count(8, markerA), is(0, "warpgauge_config_last_reload_successful"))
	lead(file(t, "other.csv", listB))
	e.await(t, "a good reload", count(8, markerB), is(1, "warpgauge_config_last_reload_successful"))

	lead(filepath.Join(mount, "counters.csv"))
	e.Signal(t, syscall.SIGHUP)
	e.ends(t, syscall.SIGTERM)
	testkit.Has(t, "log", e.Output(), "stopped")
}
