package hpc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/mapping"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobs is what a Snapshot should hold.
type jobs = map[string][]string

// rig is a client that runs.
type rig struct {
	*Client
	t    *testing.T
	dir  string
	logs *observer.ObservedLogs
	stop func() // ends Run and waits for it
}

// start runs a client; it is stopped at the end of the test at the latest.
func start(t *testing.T, dir string, o Options) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	o.Dir, o.Log = dir, zap.New(core)
	if o.Health == nil {
		o.Health = mapping.New(mapping.HPCJobs, nil, Reasons()...)
	}
	r := &rig{t: t, dir: dir, logs: logs, Client: New(o)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	r.stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	}
	t.Cleanup(r.stop)
	return r
}

// noNotify stands for a file system that tells nothing.
func noNotify() (*fsnotify.Watcher, error) { return nil, errors.New("out of inotify instances") }

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// write writes in place.
func (r *rig) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(name), []byte(text), 0o644))
}

// replace renames a new file into place, as a good prolog does.
func (r *rig) replace(name, text string) {
	r.t.Helper()
	r.write("."+name+".tmp", text)
	must(r.t, os.Rename(r.path("."+name+".tmp"), r.path(name)))
}

func (r *rig) want(when string, want jobs) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.Snapshot().Jobs); diff != "" {
		r.t.Errorf("%s: jobs (-want +got):\n%s", when, diff)
	}
}

// logged are the messages of level Warn and above since the last call, with reasons.
func (r *rig) logged() []string {
	var out []string
	for _, e := range r.logs.TakeAll() {
		if e.Level < zap.WarnLevel {
			continue
		}
		text := e.Message
		if reason, ok := e.ContextMap()["reason"].(string); ok {
			text = reason
		}
		out = append(out, text)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) soon(what string, want jobs) {
	r.t.Helper()
	eventually.True(r.t, what, func() bool { return cmp.Equal(want, r.Snapshot().Jobs) })
}
