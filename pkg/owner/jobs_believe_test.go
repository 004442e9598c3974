package owner

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The tests of this file have real directories and simulated time.

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhenAFileIsBelieved(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		after      time.Duration
		want       []string
	}{
		{"complete", "17\n18\n", 0, []string{"17", "18"}},
		{"carriage returns and blanks", " 17\r\n\r\n\t18 \r\n", 0, []string{"17", "18"}},
		{"the same job twice", "17\n18\n17\n", 0, []string{"17", "18"}},
		{"last line without end", "17\n18", jobPatience, []string{"17", "18"}},
		{"one line without end", "17", jobPatience, []string{"17"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := startJobs(t, dir, polling)
				pass(time.Millisecond)
				r.write("3.0", tt.text)
				if pass(tt.after); tt.after > 0 {
					r.want("before", jobsBy{})
					if r.Ready() {
						t.Error("ready with a file that is not believed")
					}
				}
				pass(30 * time.Millisecond)
				r.want("after", jobsBy{"3.0": tt.want})
				if !r.Ready() {
					t.Error("not ready with a file that is believed")
				}
				r.stop()
			})
		})
	}
}

// TestWriteInPlace interrupts a writer within each line: the old jobs stay until the new
// ones are complete, and no half job id is ever seen.
func TestWriteInPlace(t *testing.T) {
	const before, after = "1001\n1002\n", "2001\n2002\n"
	old, half, full := []string{"1001", "1002"}, []string{"2001"}, []string{"2001", "2002"}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		for cut := 1; cut < len(after); cut++ {
			r.replace("0", before)
			pass(20 * time.Millisecond)
			r.want("start", jobsBy{"0": old})
			h, err := os.OpenFile(r.path("0"), os.O_WRONLY|os.O_TRUNC, 0)
			must(t, err)
			watch := func(d time.Duration, allowed ...[]string) {
				for end := time.Now().Add(d); time.Now().Before(end); pass(5 * time.Millisecond) {
					got := r.Snapshot().ByDevice["0"]
					if !slices.ContainsFunc(allowed, func(a []string) bool { return slices.Equal(a, got) }) {
						t.Fatalf("cut %d: jobs are %q, want one of %q", cut, got, allowed)
					}
				}
			}
			watch(jobPatience-50*time.Millisecond, old)
			h.WriteString(after[:cut])
			allowed := [][]string{old}
			if cut == len("2001\n") {
				allowed = append(allowed, half) // a whole line parses
			}
			watch(jobPatience-50*time.Millisecond, allowed...)
			h.WriteString(after[cut:])
			must(t, h.Close())
			watch(20*time.Millisecond, append(allowed, full)...)
			watch(time.Millisecond, full)
		}
		r.stop()
	})
}

// TestFileThatChangesAllTheTime is believed when it has settled.
func TestFileThatChangesAllTheTime(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		r.replace("0", "1\n")
		pass(time.Second)
		text := "1\n2\n3"
		for range jobGrace / (30 * time.Millisecond) {
			text += "3"
			r.write("0", text)
			pass(30 * time.Millisecond)
			r.want("meanwhile", jobsBy{"0": {"1"}})
		}
		r.write("0", "1\n2\n")
		pass(30 * time.Millisecond)
		r.want("complete", jobsBy{"0": {"1", "2"}})
		r.stop()
	})
}

func TestJobsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := startJobs(t, dir, polling)
		r.replace("0", "17\n")
		r.replace("1", "17\n")
		pass(time.Second)
		r.want("both", jobsBy{"0": {"17"}, "1": {"17"}})
		must(t, os.Remove(r.path("0")))
		pass(10 * time.Millisecond)
		r.want("removed: at once", jobsBy{"1": {"17"}})
		r.write("1", "")
		pass(jobPatience - 20*time.Millisecond)
		r.want("emptied: perhaps to be written", jobsBy{"1": {"17"}})
		pass(50 * time.Millisecond)
		r.want("emptied", jobsBy{})
		r.stop()
	})
}

// TestFileThatTurnsBad keeps what it said for a moment, and no longer.
func TestFileThatTurnsBad(t *testing.T) {
	for name, spoil := range map[string]func(*jobRig){
		ReasonTooLarge:   func(r *jobRig) { must(r.t, os.Truncate(r.path("0"), maxSize+1)) },
		ReasonBadContent: func(r *jobRig) { r.write("0", "17\n\x00\x00\x00") },
		ReasonNotAFile: func(r *jobRig) {
			must(r.t, os.Remove(r.path("0")))
			must(r.t, os.Mkdir(r.path("0"), 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := startJobs(t, dir, polling)
				r.replace("0", "17\n")
				r.replace("1", "18\n")
				pass(3 * time.Second)
				r.logged()
				spoil(r)
				pass(jobPatience - 20*time.Millisecond)
				r.want("for a moment", jobsBy{"0": {"17"}, "1": {"18"}})
				pass(50 * time.Millisecond)
				r.want("then", jobsBy{"1": {"18"}})
				pass(2 * jobGrace)
				if got := r.logged(); !slices.Equal(got, []string{name}) {
					t.Errorf("log %q, want one line about %s", got, name)
				}
				must(t, os.RemoveAll(r.path("0")))
				r.replace("0", "19\n")
				pass(time.Second)
				r.want("repaired", jobsBy{"0": {"19"}, "1": {"18"}})
				r.stop()
			})
		})
	}
}
