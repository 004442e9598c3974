package owner

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit/eventually"
)

// jobsBy is what a snapshot should hold.
type jobsBy = map[string][]string

// jobRig is a JobDirectory that runs.
type jobRig struct {
	*JobDirectory
	t       *testing.T
	dir     string
	logs    *observer.ObservedLogs
	changes int    // of synctest's goroutines
	stop    func() // ends Run and waits for it
}

// startJobs runs a JobDirectory; it is stopped at the end of the test at the latest.
func startJobs(t *testing.T, dir string, set func(*JobDirectory)) *jobRig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &jobRig{t: t, dir: dir, logs: logs}
	r.JobDirectory = NewJobDirectory(dir, func() { r.changes++ }, zap.New(core))
	if set != nil {
		set(r.JobDirectory)
	}
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

// polling reads every 10 ms.
func polling(j *JobDirectory) { j.period = 10 * time.Millisecond }

func (r *jobRig) path(name string) string { return filepath.Join(r.dir, name) }

// write writes in place.
func (r *jobRig) write(name, text string) {
	r.t.Helper()
	must(r.t, os.WriteFile(r.path(name), []byte(text), 0o644))
}

// replace renames a new file into place, as a good prolog does.
func (r *jobRig) replace(name, text string) {
	r.t.Helper()
	r.write("."+name+".tmp", text)
	must(r.t, os.Rename(r.path("."+name+".tmp"), r.path(name)))
}

func (r *jobRig) want(when string, want jobsBy) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.Snapshot().ByDevice); diff != "" {
		r.t.Errorf("%s: jobs (-want +got):\n%s", when, diff)
	}
}

// logged are the messages of level Warn and above since the last call, with reasons.
func (r *jobRig) logged() []string {
	var out []string
	for _, e := range r.logs.TakeAll() {
		if e.Level < zap.WarnLevel {
			continue
		}
		text := e.Message
		if e.LoggerName == "mapping" {
			continue
		}
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

func (r *jobRig) soon(what string, want jobsBy) {
	r.t.Helper()
	eventually.True(r.t, what, func() bool { return cmp.Equal(want, r.Snapshot().ByDevice) })
}
