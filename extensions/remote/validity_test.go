package remote

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/lists"
)

func TestReadValidity(t *testing.T) {
	at := time.Date(2026, 5, 1, 18, 0, 0, 0, time.UTC)
	for text, want := range map[string]struct {
		v    validity
		line int // of the refusal; 0: accepted
	}{
		listA:                                    {},
		"":                                       {},
		"# a comment\n\n" + listA:                {},
		"# warpgauge: for=30m\n" + listA:         {v: validity{length: 30 * time.Minute}},
		"\ufeff# warpgauge: for=30m\r\n" + listA: {v: validity{length: 30 * time.Minute}},
		"# of ops\n#\n# warpgauge: until=2026-05-01T18:00:00Z": {v: validity{until: at}},
		"---\n# warpgauge: until=2026-05-01T20:00:00+02:00\n":  {v: validity{until: at}},
		listA + "# warpgauge: for=30m\n":                       {}, // not at the top
		"# warpgauge: for=30\n":                                {line: 1},
		"# warpgauge: for=-1h\n":                               {line: 1},
		"# warpgauge: for=9000h\n":                             {line: 1},
		"\n# warpgauge: until=tomorrow\n":                      {line: 2},
		"# warpgauge: fro=30m\n":                               {line: 1},
		"# warpgauge: for=1h until=2026-05-01T18:00:00Z":       {v: validity{length: time.Hour}, line: 1},
		"# warpgauge: for=1h\n# warpgauge: for=2h\n":           {v: validity{length: time.Hour}, line: 2},
		"# warpgauge: for=1h" + strings.Repeat(" ", 2000):      {line: 1},
	} {
		v, refused := readValidity([]byte(text))
		line := 0
		if len(refused) > 0 {
			line = refused[0].Line
		}
		if v != want.v || line != want.line {
			t.Errorf("%q: %+v, refused %v; want %+v, line %d", text, v, refused, want.v, want.line)
		}
	}
}

func FuzzReadValidity(f *testing.F) {
	f.Add([]byte("# warpgauge: for=30m\n" + listA))
	f.Add([]byte("# warpgauge: until=2026-05-01T18:00:00Z\nversion: 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, _ := readValidity(text)
		if v.length < 0 || v.length > longest || v.length > 0 && !v.until.IsZero() {
			t.Errorf("%q gives %+v", text, v)
		}
	})
}

const (
	half    = "# warpgauge: for=30m\n" + listC
	evening = "# warpgauge: until=2000-01-01T01:00:00Z\n" + listC // synctest begins at midnight
)

func TestTemporaryList(t *testing.T) {
	for name, text := range map[string]string{"for": half, "until": strings.Replace(evening, "01:00", "00:30", 1)} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.run()
			b.want("b", listB, lists.Applied, lists.Applied, "b")
			start := time.Now()
			out := b.want("c", text, lists.Applied, lists.Applied, "b c")
			if got := out.Until.Sub(start).Round(time.Second); got != 30*time.Minute {
				t.Errorf("%s: it ends after %v", name, got)
			}
			time.Sleep(29 * time.Minute)
			b.want("c2", text, lists.Unchanged, lists.Applied, "b c") // a second delivery does not prolong it
			b.want("b", listB, lists.Applied, lists.Applied, "b c b")
			b.want("c", text, lists.Applied, lists.Applied, "b c b c")
			time.Sleep(30*time.Minute - time.Since(start) + time.Millisecond)
			synctest.Wait()
			b.wantService("b c b c b")
			if s := b.state(); s.Condition() != lists.Ended || !strings.Contains(s.Text, "is back") {
				t.Errorf("%s: state = %+v", name, s)
			}
			b.want("c", text, lists.Ended, lists.Ended, "b c b c b") // the server still has it
			b.want("b", listB, lists.Unchanged, lists.Applied, "b c b c b")
		})
	}
}

func TestTemporaryListBeforeAnyOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.want("c", half, lists.Applied, lists.Applied, "c")
		b.set(func() { b.fail = os.ErrDeadlineExceeded })
		time.Sleep(31 * time.Minute)
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

func TestListThatIsOverAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		time.Sleep(2 * time.Hour)
		b.want("c", evening, lists.Ended, lists.Ended, "")
	})
}

// TestTemporaryListOverARestart: a restart neither moves nor forgets the end of a list.
func TestTemporaryListOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := private(t)
		b := newBench(t, in(dir))
		b.want("b", listB, lists.Applied, lists.Applied, "b")
		b.want("c", half, lists.Applied, lists.Applied, "b c")
		time.Sleep(20 * time.Minute)

		b = newBench(t, in(dir))
		if l := b.restored(); l == nil || l.Revision != "c" {
			t.Fatalf("in service %+v", l)
		}
		b.run()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		b.wantService("b")
		b.want("c", half, lists.Ended, lists.Ended, "b")

		b = newBench(t, in(dir)) // after its end
		if l := b.restored(); l == nil || l.Revision != "b" {
			t.Fatalf("in service %+v", l)
		}
		b.want("c", half, lists.Ended, lists.Ended, "")
	})
}

func TestClockSteps(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		step time.Duration
		ends time.Duration // after the delivery
	}{
		"for, back":        {half, -100 * 24 * time.Hour, 30 * time.Minute},
		"for, a day on":    {half, 24 * time.Hour, 30 * time.Minute},
		"until, back":      {evening, -100 * 24 * time.Hour, time.Hour},
		"until, 10 min on": {evening, 10 * time.Minute, 50 * time.Minute},
		"until, a day on":  {evening, 24 * time.Hour, 10*time.Minute + 4*time.Second}, // ends immediately
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.run()
				start := time.Now()
				b.want("c", c.text, lists.Applied, lists.Applied, "c")
				time.Sleep(10*time.Minute + 2*time.Second)
				b.step.Store(int64(c.step))
				time.Sleep(c.ends - time.Since(start) - time.Second)
				synctest.Wait()
				b.wantService("c")
				time.Sleep(wallPoll + 2*time.Second)
				synctest.Wait()
				b.wantService("c local")
			})
		})
	}
}

// TestClockThatIsSetBackBetweenStarts: the elapsed time is unknown, so the list has ended.
func TestClockThatIsSetBackBetweenStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for text, step := range map[string]time.Duration{half: -time.Hour, evening: -24 * time.Hour} {
			dir := private(t)
			newBench(t, in(dir)).want("c", text, lists.Applied, lists.Applied, "c")
			time.Sleep(time.Minute)
			b := newBench(t, in(dir))
			b.step.Store(int64(step))
			if l := b.restored(); l != nil {
				t.Errorf("step %v: in service %+v", step, l)
			}
			b.want("c", text, lists.Ended, lists.Ended, "")
		}
	})
}
