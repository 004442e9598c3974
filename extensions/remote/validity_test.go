package remote

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/lists"
)

func FuzzReadValidity(f *testing.F) {
	f.Add([]byte("# warpgauge: until=2026-05-01T18:00:00Z\nversion: 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if until, _ := readValidity(text); until.Location() != time.UTC {
			t.Errorf("%q gives %v", text, until)
		}
	})
}

func TestReadValidity(t *testing.T) {
	at := time.Date(2026, 5, 1, 18, 0, 0, 0, time.UTC)
	for text, want := range map[string]struct {
		until time.Time
		line  int // of the refusal; 0: accepted
	}{
		listA:                     {},
		"":                        {},
		"# a comment\n\n" + listA: {},
		"\ufeff# warpgauge: until=2026-05-01T18:00:00Z\r\n" + listA:           {until: at},
		"# of ops\n#\n# warpgauge: until=2026-05-01T18:00:00Z":                {until: at},
		"---\n# warpgauge: until=2026-05-01T20:00:00+02:00\n":                 {until: at},
		listA + "# warpgauge: until=2026-05-01T18:00:00Z\n":                   {}, // not at the top
		"# warpgauge: for=30m\n":                                              {line: 1},
		"\n# warpgauge: until=tomorrow\n":                                     {line: 2},
		"# warpgauge: until=2026-05-01T18:00:00Z until=2026-05-02T18:00:00Z":  {until: at, line: 1},
		"# warpgauge: until=2026-05-01T18:00:00Z" + strings.Repeat(" ", 2000): {line: 1},
	} {
		until, refused := readValidity([]byte(text))
		line := 0
		if len(refused) > 0 {
			line = refused[0].Line
		}
		testkit.ErrorIf(t, !until.Equal(want.until) || line != want.line, "%q: %v, refused %v; want %v, line %d", text, until, refused, want.until, want.line)
	}
}

const evening = "# warpgauge: until=2000-01-01T00:30:00Z\n" + listC // synctest begins at midnight

// TestTemporaryList: a list with an end gives way to the one before, and is refused then, also over a restart.
func TestTemporaryList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := private(t)
		b := newBench(t, in(dir))
		b.run()
		b.want("b", listB, lists.Applied, lists.Applied, "b")
		b.want("b2", listB, lists.Unchanged, lists.Applied, "b")
		start := time.Now()
		if out := b.want("c", evening, lists.Applied, lists.Applied, "b c"); !out.Until.Equal(start.Add(30 * time.Minute)) {
			t.Errorf("it ends at %v", out.Until)
		}
		time.Sleep(20 * time.Minute)
		b = newBench(t, in(dir))
		if l := b.restored(); l == nil || l.Revision != "c" {
			t.Fatalf("in service %+v", l)
		}
		b.run()
		time.Sleep(10*time.Minute - time.Since(start.Add(20*time.Minute)) - time.Second)
		b.wantService("")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.wantService("b")
		if s := b.state(); s.Condition() != lists.Ended || !strings.Contains(s.Text, "is back") {
			t.Errorf("state = %+v", s)
		}
		b.want("c", evening, lists.Ended, lists.Ended, "b") // the server still has it
		b.want("b2", listB, lists.Unchanged, lists.Applied, "b")

		b = newBench(t, in(dir)) // after its end
		if l := b.restored(); l == nil || l.Revision != "b2" {
			t.Fatalf("in service %+v", l)
		}
	})
}

// TestTemporaryListBeforeAnyOther: the local list returns, as soon as it can be put into service.
func TestTemporaryListBeforeAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		time.Sleep(30*time.Minute - trialTime/2)
		b.want("c", evening, lists.Applied, lists.Applied, "c")
		b.set(func() { b.fail = os.ErrDeadlineExceeded })
		time.Sleep(trialTime/2 + time.Second)
		synctest.Wait()
		if s := b.state(); s.Status != lists.Failed || !strings.Contains(s.Text, "cannot be put into service") {
			t.Errorf("state = %+v", s)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(retryAfter)
		synctest.Wait()
		b.wantService("c local")
		if b.inService.Load() != nil || b.state().Status != lists.Ended {
			t.Errorf("in service %v, state %+v", b.inService.Load(), b.state())
		}
	})
}
