package hpc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of this file have real directories and simulated time: nothing tells
// of changes, so that all goroutines wait for timers only.

// startPolling looks each 10 ms, so that every state of a file is seen.
func startPolling(t *testing.T, dir string) *rig {
	return start(t, dir, Options{Period: 10 * time.Millisecond, notify: noNotify})
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestFileIsBelievedWhenItHasStoodStill(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		after      time.Duration
		want       []string
	}{
		{"complete", "17\n18\n", quiet, []string{"17", "18"}},
		{"last line without end", "17\n18", patience, []string{"17", "18"}},
		{"one line without end", "17", patience, []string{"17"}},
		{"carriage returns and blanks", " 17\r\n\r\n\t18 \r\n", quiet, []string{"17", "18"}},
		{"the same job twice", "17\n18\n17\n", quiet, []string{"17", "18"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := startPolling(t, dir)
				pass(time.Millisecond)
				r.write("3.0", tt.text)
				pass(tt.after)
				r.want("before", jobs{})
				if r.Settled() {
					t.Error("settled with a file that is not believed")
				}
				pass(20 * time.Millisecond)
				r.want("after", jobs{"3.0": tt.want})
				if !r.Settled() {
					t.Error("not settled with a file that is believed")
				}
				r.stop()
			})
		})
	}
}

// TestWriteInPlace takes each point at which a write can be interrupted: the old
// jobs stay until the new ones are complete, with no gap and no half job id.
func TestWriteInPlace(t *testing.T) {
	const before, after = "1001\n1002\n", "2001\n2002\n"
	old, full := []string{"1001", "1002"}, []string{"2001", "2002"}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startPolling(t, dir)
		for cut := 1; cut < len(after); cut++ {
			r.replace("0", before)
			pass(quiet + 20*time.Millisecond)
			r.want("start", jobs{"0": old})
			h, err := os.OpenFile(r.path("0"), os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			pause := patience - 50*time.Millisecond
			watch := func(d time.Duration, allowed ...[]string) {
				for end := time.Now().Add(d); time.Now().Before(end); pass(5 * time.Millisecond) {
					got := r.Snapshot().Jobs["0"]
					if !slices.ContainsFunc(allowed, func(a []string) bool { return slices.Equal(a, got) }) {
						t.Fatalf("cut %d: jobs are %q, want one of %q", cut, got, allowed)
					}
				}
			}
			watch(pause, old)
			h.WriteString(after[:cut])
			if after[cut-1] == '\n' {
				pause = quiet - 20*time.Millisecond
			}
			watch(pause, old)
			h.WriteString(after[cut:])
			must(t, h.Close())
			watch(quiet+20*time.Millisecond, old, full)
			watch(time.Millisecond, full)
		}
		r.stop()
	})
}

// TestFileThatNeverStandsStill: what is complete of it is taken in the end.
func TestFileThatNeverStandsStill(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startPolling(t, dir)
		r.replace("0", "1\n")
		pass(time.Second)
		text := "1\n2\n3"
		for range 2 * grace / (30 * time.Millisecond) {
			text += "3"
			r.write("0", text)
			pass(30 * time.Millisecond)
			got := r.Snapshot().Jobs["0"]
			if !slices.Equal(got, []string{"1"}) && !slices.Equal(got, []string{"1", "2"}) {
				t.Fatalf("jobs are %q", got)
			}
		}
		r.want("after a while", jobs{"0": {"1", "2"}})
		r.stop()
	})
}

func TestJobsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startPolling(t, dir)
		r.replace("0", "17\n")
		r.replace("1", "17\n")
		pass(time.Second)
		r.want("both", jobs{"0": {"17"}, "1": {"17"}})
		must(t, os.Remove(r.path("0")))
		pass(10 * time.Millisecond)
		r.want("removed: at once", jobs{"1": {"17"}})
		r.write("1", "")
		pass(patience - 20*time.Millisecond)
		r.want("emptied: perhaps to be written", jobs{"1": {"17"}})
		pass(40 * time.Millisecond)
		r.want("emptied", jobs{})
		r.stop()
	})
}

// TestFileThatTurnsBad keeps what it said for a moment, and no longer.
func TestFileThatTurnsBad(t *testing.T) {
	for name, spoil := range map[string]func(*rig){
		ReasonTooLarge:   func(r *rig) { must(r.t, os.Truncate(r.path("0"), maxSize+1)) },
		ReasonBadContent: func(r *rig) { r.write("0", "17\n\x00\x00\x00") },
		ReasonNotAFile: func(r *rig) {
			must(r.t, os.Remove(r.path("0")))
			must(r.t, os.Mkdir(r.path("0"), 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := startPolling(t, dir)
				r.replace("0", "17\n")
				r.replace("1", "18\n")
				pass(3 * time.Second)
				r.logged()
				spoil(r)
				pass(grace - 20*time.Millisecond)
				r.want("for a moment", jobs{"0": {"17"}, "1": {"18"}})
				pass(40 * time.Millisecond)
				r.want("then", jobs{"1": {"18"}})
				pass(time.Minute)
				if got := r.logged(); !slices.Equal(got, []string{name}) {
					t.Errorf("log %q, want one line about %s", got, name)
				}
				must(t, os.RemoveAll(r.path("0")))
				r.replace("0", "19\n")
				pass(time.Second)
				r.want("repaired", jobs{"0": {"19"}, "1": {"18"}})
				r.stop()
			})
		})
	}
}

// TestSameLengthWithinOneTick writes other content with the same length and the
// same times, as two writes within one tick of a coarse clock do.
func TestSameLengthWithinOneTick(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startPolling(t, dir)
		r.write("0", "17\n")
		pass(quiet + 30*time.Millisecond)
		r.want("first", jobs{"0": {"17"}})
		info, err := os.Stat(r.path("0"))
		must(t, err)
		h, err := os.OpenFile(r.path("0"), os.O_WRONLY, 0)
		must(t, err)
		defer h.Close()
		h.WriteString("18\n")
		must(t, os.Chtimes(r.path("0"), info.ModTime(), info.ModTime()))
		pass(quiet + 30*time.Millisecond)
		r.want("second", jobs{"0": {"18"}})
		r.stop()
	})
}

// TestStatusIsTrusted: what has stood for a while is not read again.
func TestStatusIsTrusted(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "0"), []byte("17\n"), 0o644))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	var f file
	begin := time.Now()
	for _, d := range []time.Duration{0, quiet, raciness - 1, raciness, time.Hour} {
		if _, err := f.look(root, "0", begin.Add(d)); err != nil {
			t.Fatal(err)
		}
		if want := d >= raciness; f.sure != want {
			t.Errorf("after %v: status is trusted: %v, want %v", d, f.sure, want)
		}
	}
	if !slices.Equal(f.jobs, []string{"17"}) {
		t.Errorf("jobs %q", f.jobs)
	}
	must(t, os.Chtimes(filepath.Join(dir, "0"), begin, begin))
	if _, err := f.look(root, "0", begin.Add(2*time.Hour)); err != nil || f.sure {
		t.Errorf("a changed status is trusted (%v)", err)
	}
}

// TestOldFilesAreBelievedAtOnce: beside jobs that run, an exporter that starts
// knows them at its first look.
func TestOldFilesAreBelievedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		age  time.Duration
		want jobs
	}{
		{aged / 2, jobs{}},
		{2 * aged, jobs{"0": {"17"}, "1": {"18"}}},
		{-time.Hour, jobs{}}, // by the clock of another machine
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "0"), []byte("17\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "1"), []byte("18"), 0o644))
		start := time.Now().Add(tt.age)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(start.Round(0))) // simulated time begins in 2000
			r := startPolling(t, dir)
			pass(time.Millisecond)
			r.want(tt.age.String(), tt.want)
			r.stop()
		})
	}
}
