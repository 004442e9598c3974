package main_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/hungfs"
)

// hostile are things that can be at a path where a file is expected, and what is said
// about each.
var hostile = []struct {
	name, says string
	make       func(path string) error
}{
	{"FIFO", "a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o600) }},
	{"directory", "a directory", func(path string) error { return os.Mkdir(path, 0o700) }},
	{"device", "a device", func(path string) error { return os.Symlink("/dev/zero", path) }},
	{"file of 10 GB", "too large", func(path string) error {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		return os.Truncate(path, 10<<30)
	}},
	{"file without an end", "too large", func(path string) error { return os.Symlink("/proc/kallsyms", path) }}, // 10 MB, and says 0
}

// TestE2EHostileFiles: what is at a path that the operator named costs neither the start
// nor a reload nor the stop more than an error that names it.
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
				if code != 1 || !strings.Contains(out, path) || !strings.Contains(out, h.says) {
					t.Errorf("start with %s: exit code %d, %q; want 1, the name of the file and %q", flag, code, out, h.says)
				}
			}
		})
	}
	t.Run("reload", func(t *testing.T) {
		t.Parallel()
		testHostileReload(t, exe)
	})
	t.Run("web configuration", func(t *testing.T) {
		t.Parallel()
		testHostileWebConfig(t, exe)
	})
	t.Run("hung file system", func(t *testing.T) {
		t.Parallel()
		testHungList(t, exe)
	})
}

// testHostileReload puts one after the other where the list was, and the list again. The
// file watch reports each of them, and so does a request.
func testHostileReload(t *testing.T, exe string) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, listA)
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, "DCGM_FI_DEV_SM_CLOCK")
	client := newClient(t)
	for _, h := range hostile {
		next := path + ".next"
		must(t, h.make(next))
		if err := os.RemoveAll(path); err != nil { // rename does not replace a file by a directory
			t.Fatal(err)
		}
		must(t, os.Rename(next, path))
		eventually.OK(t, h.name+" in the metrics", func() error {
			return e.scrape(t, acceptText).want(0, "warpgauge_config_last_reload_successful")
		})
		a := request(t, client, http.MethodPost, e.url+"/-/reload")
		if a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), path) || !strings.Contains(string(a.body), h.says) {
			t.Errorf("POST /-/reload with a %s: status %d, %q", h.name, a.code, a.body)
		}
		if log := e.Output(); !strings.Contains(log, h.says) {
			t.Errorf("the log does not say %q", h.says)
		}
		if p := e.scrape(t, acceptText); len(p.family("DCGM_FI_DEV_SM_CLOCK")) != 8 {
			t.Errorf("with a %s the former list is not in service", h.name)
		}
		must(t, os.RemoveAll(path))
		write(t, path, listA) // what is in service: only the metric changes
		eventually.OK(t, "the list again, after a "+h.name, func() error {
			return e.scrape(t, acceptText).want(1, "warpgauge_config_last_reload_successful")
		})
	}
	must(t, os.Remove(path))
	must(t, syscall.Mkfifo(path, 0o600))
	e.Signal(t, syscall.SIGHUP)
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
}

// testHostileWebConfig: while the web configuration cannot be read no request is let
// through, and none waits.
func testHostileWebConfig(t *testing.T, exe string) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	must(t, err)
	path := filepath.Join(t.TempDir(), "web.yml")
	users := "basic_auth_users: {prometheus: " + string(hash) + "}\n"
	write(t, path, users)
	e := serve(t, exe, "--web-config-file="+path)
	client := newClient(t)
	scrape := func(what string, want int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+"/metrics", nil)
		must(t, err)
		req.SetBasicAuth("prometheus", "secret")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", what, resp.StatusCode, want)
		}
	}
	scrape("a good file", http.StatusOK)
	for _, h := range hostile {
		must(t, errors.Join(os.RemoveAll(path), h.make(path)))
		scrape(h.name, http.StatusInternalServerError)
		must(t, os.RemoveAll(path))
		write(t, path, users)
		scrape("the file again, after a "+h.name, http.StatusOK)
	}
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
}

// testHungList: the list is on a file system whose server is away. Reloads fail after
// some seconds, another list can be named meanwhile, and the stop waits for nothing.
func testHungList(t *testing.T, exe string) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	must(t, os.Mkdir(mount, 0o700))
	path := filepath.Join(dir, "counters.csv")
	write(t, path, listA)
	e := serve(t, exe, "--collect-interval=100", "--enable-reload-endpoint", "-f", path)
	e.awaitList(t, "DCGM_FI_DEV_SM_CLOCK")
	hungfs.Mount(t, mount)
	lead := func(to string) { // the link is swapped, as a ConfigMap's is
		must(t, os.Symlink(to, path+".next"))
		must(t, os.Rename(path+".next", path))
	}
	lead(filepath.Join(mount, "counters.csv"))
	client := newClient(t)
	a := request(t, client, http.MethodPost, e.url+"/-/reload")
	if a.code != http.StatusInternalServerError || !strings.Contains(string(a.body), path) || !strings.Contains(string(a.body), "does not answer") {
		t.Errorf("POST /-/reload: status %d, %q", a.code, a.body)
	}
	p := e.scrape(t, acceptText)
	if len(p.family("DCGM_FI_DEV_SM_CLOCK")) != 8 {
		t.Error("the former list is not in service")
	}
	eventually.OK(t, "the hang in the metrics", func() error {
		return e.scrape(t, acceptText).want(0, "warpgauge_config_last_reload_successful")
	})
	other := file(t, "other.csv", listB)
	lead(other)
	e.awaitList(t, "DCGM_FI_DEV_MEM_CLOCK")
	eventually.OK(t, "a good reload in the metrics", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_config_last_reload_successful")
	})

	lead(filepath.Join(mount, "counters.csv"))
	e.Signal(t, syscall.SIGHUP)
	e.Signal(t, syscall.SIGTERM)
	if code := e.ExitCode(t); code != 0 {
		t.Errorf("exit code %d while a reload hangs, want 0", code)
	}
	if log := e.Output(); !strings.Contains(log, "stopped") {
		t.Errorf("the log does not end well:\n%s", log)
	}
}

// TestE2EStrayJobFiles: audit S10. 100,000 files that are none of jobs, some with names
// like those of job files, neither hide those that are, nor cost memory.
func TestE2EStrayJobFiles(t *testing.T) {
	t.Parallel()
	jobs, err := os.MkdirTemp("/dev/shm", "warpgauge-jobs-") //nolint:usetesting // a disk takes half a minute
	if err != nil {
		jobs = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(jobs) })
	for i := range 100_000 {
		name := fmt.Sprintf([...]string{"stray-%d", "0%d", ".%d.tmp", "%d~"}[i%4], i)
		must(t, os.Symlink("nowhere", filepath.Join(jobs, name)))
	}
	e := serve(t, build(t), "--collect-interval=100", "--hpc-job-mapping-dir="+jobs)
	write(t, filepath.Join(jobs, "3"), "17\n")
	e.wantJobs(t, "a job among 100,000 stray files", map[string][]string{"3": {"17"}})
	var p page
	eventually.OK(t, "a healthy mapping", func() error {
		p = e.scrape(t, acceptText)
		return p.want(1, "warpgauge_mapping_up", "mapping", "hpc_jobs")
	})
	if heap, err := p.one("go_memstats_heap_inuse_bytes"); err != nil || heap > 64<<20 {
		t.Errorf("%.0f MiB of heap, %v", heap/(1<<20), err)
	}
	must(t, os.Remove(filepath.Join(jobs, "3")))
	e.wantJobs(t, "the job has ended", nil)
}
