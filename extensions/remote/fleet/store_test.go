package fleet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/file"
)

// TestStateDamaged: a damaged file is an error, because the server must not guess which agent has which list. The
// unfinished file of a killed process is ignored.
func TestStateDamaged(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		dir := file.Private{Path: t.TempDir()}
		must(t, errors.Join(os.Chmod(dir.Path, 0o700), dir.Write(stateFile, []byte(checksum([]byte(content))+"\n"+content))))
		if _, _, err := openStore(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", content, err, want)
		}
	}
	f(`{"cohorts":{"a"`, "unexpected end")
	f(`{"format":3}`, "later version")
	f(`{"lists":{"00":{"hash":"00","name":"a","content":"YQ=="}}}`, "another hash")
	f(`{"lists":{"00":null}}`, "another hash")
	f(`{"cohorts":{"a":null}}`, "another name")
	f(`{"members":{"a":{"zz":{}}}}`, "UUID")
	s := newSim(t, 1, "")
	must(t, os.WriteFile(filepath.Join(s.dir, "."+stateFile), []byte("{"), 0o600))
	s.stable()
	name := filepath.Join(s.dir, stateFile)
	core, logs := observer.New(zap.ErrorLevel)
	s.o.Log = zap.New(core)
	text := testkit.Get(os.ReadFile(name))(t)
	for i := 0; i < len(text); i += 17 { // one byte
		text[i] ^= 1
		must(t, os.WriteFile(name, text, 0o600))
		text[i] ^= 1
		if s.open(); s.core.store.damaged == nil || s.core.cohorts["all"] == nil {
			t.Fatalf("byte %d: %v, cohorts %v", i, s.core.store.damaged, s.core.cohorts)
		}
		must(t, os.WriteFile(name, text, 0o600))
	}
	testkit.Equal(t, "lines of the log about a damaged state", (len(text)+16)/17, logs.FilterMessageSnippet("starting from its copy").Len())
	if s.open(); s.core.store.damaged != nil || s.core.cohorts["all"].Stable != hashOf(listA) {
		t.Errorf("the whole state: %v", s.core.store.damaged)
	}
	s.offerList(listB)
	s.until("list B is stable", time.Hour, func() bool { return s.core.cohorts["all"].Stable == hashOf(listB) })
	s.command("rollback") // lasts, whichever file is lost
	for _, lost := range []string{stateFile, copyFile} {
		must(t, os.Remove(filepath.Join(s.dir, lost)))
		if s.open(); (s.core.store.damaged == nil) != (lost == copyFile) || s.core.cohorts["all"].Stable != hashOf(listA) {
			t.Errorf("without %s: %v", lost, s.core.store.damaged)
		}
		must(t, s.core.save(s.now))
	}
	if _, _, err := openStore(s.core.store.dir); err == nil || !strings.Contains(err.Error(), "another process uses the directory") {
		t.Errorf("a second server opened the state: %v", err)
	}
}

// TestDiskFull: without a writable state no stage begins. A stop still happens, and is saved later.
func TestDiskFull(t *testing.T) {
	s := newSim(t, 100, "").stable()
	const full = "/proc/none" // /proc allows no new files
	s.core.store.dir.Path = full
	s.offerList(listB)
	s.run(10 * time.Minute)
	testkit.Equal(t, "nodes that were offered a list that is not on the disk", 0, s.ever(listB))
	if f := s.core.fleet(s.now); f.StateErr == "" {
		t.Error("the API does not name the error")
	}
	s.core.store.dir.Path = s.dir
	s.until("a canary has it", 10*time.Minute, func() bool { return s.with(listB) == 1 })
	s.each(func(n *node) { n.suffer = stall; stall(n) })
	s.core.store.dir.Path = full
	s.until("stopped", 10*time.Minute, func() bool { return s.state() == Stopped })
	s.run(time.Minute)
	testkit.Equal(t, "nodes that are back", 100, s.with(listA))
	s.core.store.dir.Path = s.dir
	s.run(2 * time.Second)
	s.open()
	if s.state() != Stopped || s.core.cohorts["all"].Rejected != hashOf(listB) {
		t.Errorf("after a start: %s, rejected %q", s.state(), s.core.cohorts["all"].Rejected)
	}
}

// TestCohortGone: a cohort that leaves the directory is forgotten, and starts over when it returns.
func TestCohortGone(t *testing.T) {
	s := newSim(t, 20, "    stages: [{percent: 100}]\n").stable()
	former := s.yaml
	s.yaml = strings.Replace(s.yaml, "name: all", "name: others\n  selector: {rack: none}", 1)
	s.take()
	if f := s.core.fleet(s.now); f.NoCohort != 20 || len(s.core.find("others", "", s.now)) != 0 || len(s.core.find("", "", s.now)) != 20 {
		t.Errorf("%d agents without a cohort, want 20", f.NoCohort)
	}
	s.open()
	testkit.ErrorIf(t, s.core.cohorts["all"] != nil, "the cohort is still there")
	s.yaml = former
	s.take()
	s.until("done", 10*time.Minute, func() bool { return s.state() == Done })
	if got := newCore(Options{Log: zap.NewNop()}, s.core.totals, nil, newSaved(), s.now).fleet(s.now); got.Directory.Taken != nil {
		t.Error("a server without a directory says that it has one")
	}
}
