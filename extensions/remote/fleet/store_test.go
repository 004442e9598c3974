package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

// A file of version 0.1.0 can end anywhere, as that appended to it: what whole lines say counts.
func TestStateTruncatedAnywhere(t *testing.T) {
	s := newSim(t, 8, "    stages: [{percent: 10, soak: 1m}, {percent: 50, soak: 1m}, {percent: 100, soak: 1m}]\n")
	s.stable()
	s.offerList(listB)
	s.until("second stage", 20*time.Minute, func() bool { return s.rollout().Stage == 2 })
	whole, err := os.ReadFile(filepath.Join(s.dir, stateFile))
	must(t, err)
	for n := range len(whole) + 1 {
		state := newSaved()
		must(t, state.read(bytes.NewReader(whole[:n])))
		c := state.cohorts["all"]
		if n == len(whole) && (len(c.Rollout.members) != 4 || state.lists[hashOf(listA)] == nil || state.lastID != 2) {
			t.Errorf("of the whole file: %+v, rollout %+v", state, c.Rollout)
		}
		if c != nil && c.Rollout != nil && len(c.Rollout.members) > 4 {
			t.Fatalf("%d bytes: %d members", n, len(c.Rollout.members))
		}
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "."+stateFile), whole[:9], 0o600)) // killed while it wrote
	s.open()
	s.until("done", 20*time.Minute, func() bool { return s.state() == Done })
}

// What is damaged before the end is an error that names the line: no guess about who has which list.
func TestStateDamaged(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, stateFile), []byte(content), 0o600))
		root, err := os.OpenRoot(dir)
		must(t, err)
		defer root.Close()
		if _, _, err := openStore(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", content, err, want)
		}
	}
	f("{\"cohort\":{\"name\":\"a\"}}\nx\n{\"cohort\":{\"name\":\"b\"}}\n", "line 2")
	f("{\"list\":{\"hash\":\"00\",\"name\":\"a\",\"content\":\"YQ==\"}}\n", "line 1: a list has hash")
	f("{\"format\":2}\n", "later version")
	f("{\"cohort\":{\"name\":\"a\",\"rollout\":{\"id\":1}}}\n{\"members\":{\"cohort\":\"a\",\"rollout\":1,\"agents\":{\"zz\":{}}}}\n", "line 2")
}

// While the state cannot be written no stage begins; a stop is made all the same, and written later.
func TestDiskFull(t *testing.T) {
	s := newSim(t, 100, "")
	s.stable()
	broken := func() (mend func()) {
		whole := s.core.store.root
		closed, err := os.OpenRoot(t.TempDir()) // no file can be made in it
		must(t, err)
		must(t, closed.Close())
		s.core.store.root = closed
		return func() { s.core.store.root = whole }
	}
	mend := broken()
	s.offerList(listB)
	s.run(10 * time.Minute)
	if s.ever(listB) != 0 {
		t.Fatalf("%d nodes were offered a list that is not on the disk", s.ever(listB))
	}
	if f := s.core.fleet(s.now); f.StateErr == "" {
		t.Error("the API does not name the error")
	}
	mend()
	s.until("a canary has it", 10*time.Minute, func() bool { return s.with(listB) == 1 })
	for _, n := range s.nodes {
		n.suffer = stall
		stall(n)
	}
	mend = broken()
	s.until("stopped", 10*time.Minute, func() bool { return s.state() == Stopped })
	s.run(time.Minute)
	if s.with(listA) != 100 {
		t.Errorf("%d nodes are back, want all", s.with(listA))
	}
	mend()
	s.run(2 * time.Second)
	s.open()
	if s.state() != Stopped || s.core.cohorts["all"].Rejected != hashOf(listB) {
		t.Errorf("after a start: %s, rejected %q", s.state(), s.core.cohorts["all"].Rejected)
	}
}

// Two servers never use one file.
func TestStateLocked(t *testing.T) {
	s := newSim(t, 1, "")
	root, err := os.OpenRoot(s.dir)
	must(t, err)
	defer root.Close()
	if _, _, err := openStore(root); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a second server opened the state: %v", err)
	}
}

// A cohort that the directory no longer has is forgotten, and begins again when it comes back.
func TestCohortGone(t *testing.T) {
	s := newSim(t, 20, "    stages: [{percent: 100}]\n")
	s.stable()
	former := s.yaml
	s.yaml = strings.Replace(s.yaml, "name: all", "name: others", 1)
	s.take()
	s.open()
	if s.core.cohorts["all"] != nil {
		t.Error("the cohort is still there")
	}
	s.yaml = former
	s.take()
	s.until("done", 10*time.Minute, func() bool { return s.state() == Done })
	if got := newCore(Options{Log: zap.NewNop()}, s.core.totals, nil, newSaved(), s.now).fleet(s.now); got.Directory.Taken != nil {
		t.Error("a server without a directory says that it has one")
	}
}
