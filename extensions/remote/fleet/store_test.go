package fleet

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/file"
)

// openIn opens a store in a directory whose file has that content.
func openIn(t *testing.T, content []byte) (*store, *saved, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, stateFile), content, 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := file.Private{Path: dir, Of: "the state"}.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	st, state, err := openStore(root)
	if err == nil {
		t.Cleanup(func() { _ = st.close() })
	}
	return st, state, err
}

// A state that was cut off anywhere is read up to its last whole line, and can be continued.
func TestStateTruncatedAnywhere(t *testing.T) {
	s := newSim(t, 8, "    stages: [{percent: 10, soak: 1m}, {percent: 50, soak: 1m}, {percent: 100, soak: 1m}]\n")
	s.stable()
	s.offerList(listB)
	s.until("second stage", 20*time.Minute, func() bool { return s.rollout().Stage == 2 })
	whole, err := os.ReadFile(filepath.Join(s.dir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		state, good, err := readState(bytes.NewReader(whole[:n]))
		if want := int64(bytes.LastIndexByte(whole[:n], '\n') + 1); err != nil || good != want {
			t.Fatalf("%d of %d bytes: %d are good, want %d; error %v", n, len(whole), good, want, err)
		}
		// No stage that whole lines speak of has more than it may.
		if c := state.cohorts["all"]; c != nil && c.Rollout != nil && c.Rollout.To == hashOf(listB) && len(c.Rollout.members) > 4 {
			t.Fatalf("%d bytes: %d members", n, len(c.Rollout.members))
		}
	}
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		st, before, err := openIn(t, whole[:n])
		if err != nil {
			t.Fatal(err)
		}
		if err := st.append(line{Cohort: &status{Name: "x"}}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(st.f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if _, after, err := openIn(t, content); err != nil || len(after.cohorts) != len(before.cohorts)+1 {
			t.Errorf("%d bytes, continued: %v", n, err)
		}
	}
}

// What is damaged before the end is an error that names the line: no guess about who has which list.
func TestStateDamaged(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		if _, _, err := openIn(t, []byte(content)); err == nil || !strings.Contains(err.Error(), want) {
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
		whole := s.core.store.f
		f, err := os.Open(whole.Name()) // a file that takes no bytes
		if err != nil {
			t.Fatal(err)
		}
		s.core.store.f = f
		return func() { s.core.store.f = whole; _ = f.Close() }
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

// Compaction keeps all that is needed, and the file is bounded.
func TestCompaction(t *testing.T) {
	s := newSim(t, 100, "")
	s.stable()
	s.offerList(listB)
	s.until("second stage", 20*time.Minute, func() bool { return s.rollout().Stage == 2 })
	if err := s.core.store.compact(s.core.lines()); err != nil {
		t.Fatal(err)
	}
	size := s.core.store.good
	s.run(65 * time.Second)
	s.open()
	if r := s.rollout(); r.Stage != 2 || len(r.members) != 10 || s.core.cohorts["all"].Stable != hashOf(listA) || s.core.lists[hashOf(listA)] == nil {
		t.Errorf("after compaction: stage %d, %d members", r.Stage, len(r.members))
	}
	s.core.store.good = compactBytes + 1
	s.core.store.live = 1
	_ = s.core.write(line{Cohort: s.core.cohorts["all"]})
	if s.core.store.good > 2*size {
		t.Errorf("the file has %d bytes, %d before", s.core.store.good, size)
	}
}

// Two servers never use one file.
func TestStateLocked(t *testing.T) {
	s := newSim(t, 1, "")
	root, err := file.Private{Path: s.dir, Of: "the state"}.Open()
	if err != nil {
		t.Fatal(err)
	}
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
	if got := newCore(Options{Log: zap.NewNop()}, s.core.totals, nil, &saved{cohorts: map[string]*status{}}, s.now).fleet(s.now); got.Directory.Taken != nil {
		t.Error("a server without a directory says that it has one")
	}
}
