package recorder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/recorder/history"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

var must = testkit.Must

const counters = `DCGM_FI_DEV_POWER_USAGE, gauge, Power
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, gauge, Reasons
`

const (
	power = iota
	clocks
	width
)

// node has two GPUs whose rows the test writes.
type node struct {
	t       testing.TB
	board   view.Board
	bus     events.Bus
	rows    *rows.Reader
	history *history.History
	told    *events.Subscription // about recordings
	verdict events.Board
	src     *view.Source
	row     []float64
	*Recorder
}

func newNode(t testing.TB, directory string) *node {
	list, _, err := field.Parse(strings.NewReader(counters), field.ParseOptions{})
	must(t, err)
	n := &node{t: t, row: make([]float64, 2*width)}
	n.told = n.bus.Subscribe(1024, events.Recording)
	n.judge(events.OK)
	n.rows = rows.New(&n.board, &n.bus)
	n.history = history.New(history.Options{Rows: n.rows})
	n.src = &view.Source{Collector: "test", Fields: list, Ring: ring.Make(1024, 2, 2*width), Interval: time.Second}
	for gpu := range 2 {
		n.src.Devices = append(n.src.Devices, collector.Device{ID: fmt.Sprint("GPU-", gpu), GPU: fmt.Sprint(gpu), Level: field.GPU})
		for i := range list.Fields {
			n.src.Columns = append(n.src.Columns, collector.Column{Device: gpu, Field: list.Fields[i].Desc.ID})
		}
	}
	n.board.Store(&view.View{Sources: []*view.Source{n.src}})
	n.Recorder = New(Options{
		Directory: directory, Before: time.Minute, After: 30 * time.Second, Files: 5, Bytes: 64 << 20, Hostname: "node", Version: "v1",
		Board: &n.board, History: n.history, Node: n, Events: &n.bus, Verdicts: &n.verdict, Logger: zap.NewNop(), Registerer: prometheus.NewRegistry(),
	})
	return n
}

// judge sets the verdict on GPU-0.
func (n *node) judge(s events.State) {
	n.verdict.Store(&events.Snapshot{Verdicts: []events.Verdict{
		{Device: collector.Device{ID: "GPU-0"}, State: s, Reason: "of a test"}, {Device: collector.Device{ID: "GPU-1"}, State: events.Failed},
	}})
}

func (n *node) Status() []session.CollectorStatus {
	return []session.CollectorStatus{{Devices: []session.DeviceStatus{{Device: n.src.Devices[0], State: session.Lost, Reason: "gone"}}}}
}

func (n *node) Users(d *collector.Device) []User { return []User{{Job: "job of " + d.ID}} }

// run samples for some seconds and lets the recorder work after each.
func (n *node) run(seconds int, change func(second int)) {
	defer testkit.Start(n.t, n.rows.Run)() // publishes events
	for i := range seconds {
		time.Sleep(time.Second)
		for gpu := range 2 {
			n.row[gpu*width+power] = 100 + rand.Float64()
		}
		if change != nil {
			change(i)
		}
		now := time.Now().UnixNano()
		n.src.Ring.Append(now, []int64{now, now}, n.row)
		n.history.Sync(time.Now())
		n.step(time.Now())
	}
}

func (n *node) List() []rows.Recording { return *n.list.Load() }

// recorded returns causes and devices of the existing recordings, oldest first.
func (n *node) recorded() (out []string) {
	for _, r := range slices.Backward(n.List()) {
		out = append(out, r.Cause+" "+r.Device)
	}
	return out
}

func (n *node) read(name string) *Recording {
	n.t.Helper()
	f, err := n.Open(name)
	must(n.t, err)
	defer func() { _ = f.Close() }()
	r := testkit.Get(Read(f))(n.t)
	return r
}

func private(t testing.TB) string { return filepath.Join(t.TempDir(), "recordings") }

func TestWhatSetsOffARecording(t *testing.T) {
	f := func(name string, change func(n *node, second int), want ...string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, private(t))
			n.run(240, func(second int) { change(n, second) })
			testkit.Equal(t, fmt.Sprintf("%s: recordings", name), want, n.recorded())
		})
	}
	add := func(e events.Event) func(*node, int) {
		return func(n *node, second int) {
			if second == 100 {
				n.bus.Publish(e)
			}
		}
	}
	f("an XID", add(events.Event{Kind: events.XID, Device: &collector.Device{ID: "GPU-0"}, Code: 79, Bad: true}), "xid GPU-0")
	f("a lost device", add(events.Event{Kind: events.DeviceState, Device: &collector.Device{ID: "GPU-1"}, Text: "device is lost", Bad: true}), "device_state GPU-1")
	f("a device that is up again", add(events.Event{Kind: events.DeviceState, Device: &collector.Device{ID: "GPU-1"}, Text: "device is up"}))
	f("another event", add(events.Event{Kind: events.Reload, Text: "reload failed", Bad: true}))
	f("throttling", func(n *node, second int) { n.row[width+clocks] = float64(1 + 8*(second/100%2)) }, "throttling GPU-1")
	f("a power cap", func(n *node, second int) { n.row[clocks] = float64(4 * (second % 2)) })
	f("throttling all the time", func(n *node, second int) { n.row[clocks] = 8 })
	f("failing health", func(n *node, second int) {
		n.judge([]events.State{events.OK, events.Degraded, events.Failed}[second/80])
	}, "health GPU-0")
	f("a clock that flaps", func(n *node, second int) { n.row[clocks] = float64(8 * (second % 2)) }, "throttling GPU-0")
}

func TestARecordingIsTheHistoryAroundWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, private(t))
		var at time.Time
		n.run(140, func(second int) {
			n.row[width+power] = math.Inf(1)
			if second%7 != 0 {
				n.row[power] = math.NaN()
			}
			if second == 100 {
				at = time.Now()
				n.bus.Publish(events.Event{Kind: events.XID, Device: &collector.Device{ID: "GPU-0"}, Code: 79, Bad: true})
			}
		})
		if len(n.List()) != 1 {
			t.Fatalf("recordings: %v", n.List())
		}
		got := n.read(n.List()[0].Name)
		from, until := at.Add(-time.Minute).UTC(), at.Add(30*time.Second).UTC()
		want := rows.Recording{Name: "recording-" + at.UTC().Format("20060102-150405.000") + "-xid.om.zst", Time: at.UTC(), Cause: "xid", Device: "GPU-0", From: from, Until: until}
		testkit.Equal(t, "header", want, got.Recording)
		if len(got.Events) != 1 || got.Events[0].Code != 79 || len(got.Devices) != 2 || len(got.Fields) != 1 || len(got.Verdicts) != 2 {
			t.Errorf("events %+v, %d devices, %d lists, verdicts %v", got.Events, len(got.Devices), len(got.Fields), got.Verdicts)
		}
		d := got.Devices[0]
		testkit.ErrorIf(t, d.State != "lost" || d.Reason != "gone" || len(d.Users) != 1 || d.Users[0].Job != "job of GPU-0", "device %+v", d)
		testkit.Equal(t, "field list", string(field.Format(n.src.Fields)), string(field.Format(got.Fields[0])))
		all := n.history.Series("", 0)
		testkit.FatalIf(t, len(got.Series) != len(all), "%d series, want %d", len(got.Series), len(all))
		for i, samples := range got.Samples {
			k := 0
			for at, v := range n.history.Samples(all[i], from.UnixMilli(), until.UnixMilli()) {
				if math.IsNaN(v) {
					continue
				}
				testkit.FatalIf(t, k >= len(samples) || samples[k].Time != at || samples[k].Value != v, "series %d: sample %d is not %v at %d", i, k, v, at)
				k++
			}
			if all := i != 0; len(samples) != k || all && k != 90 || !all && (k < 12 || k > 13) { // in one series, 1 in 7 samples is not blank
				t.Errorf("series %d has %d samples, the history %d", i, len(samples), k)
			}
		}
	})
}

func TestOperatorsAndTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, private(t))
		n.run(10, nil)
		ctx, cancel := context.WithCancel(t.Context())
		end := testkit.Start(t, n.Run)
		for range 2 { // the second one is the same
			must(t, n.Record(ctx))
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		testkit.Has(t, "40 s after the last one", fmt.Sprint(n.Record(ctx)), "at most one is made in 1m0s")
		time.Sleep(time.Minute)
		must(t, n.Record(ctx))
		end() // the pending recording is written
		testkit.Equal(t, "recordings", []string{"operator ", "operator "}, n.recorded())
		cancel()
		testkit.Equal(t, "there is an error after the end", true, n.Record(ctx) != nil)
		locked := newNode(t, "/proc") // not even root can make a file there
		defer testkit.Start(t, locked.Run)()
		err := locked.Record(t.Context())
		testkit.ErrorIf(t, err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--recorder-directory"), "a directory that cannot be written: %v", err)
	})
}

func TestTheOldestAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		directory := private(t)
		n := newNode(t, directory)
		xid := func(second int) {
			if second%200 == 100 {
				n.bus.Publish(events.Event{Kind: events.XID, Device: &collector.Device{ID: fmt.Sprint("GPU-", second)}, Code: 79, Bad: true})
			}
		}
		must(t, os.MkdirAll(directory, 0o700))
		for _, other := range []string{"notes.txt", "recording-of-mine", "recording-19990101-000000.000-xid.om.zst", ".recording-19990101-000001.000-xid.om.zst"} {
			must(t, os.WriteFile(filepath.Join(directory, other), []byte("x"), 0o600))
		}
		must(t, os.Chtimes(filepath.Join(directory, ".recording-19990101-000001.000-xid.om.zst"), time.Now(), time.Now().Add(-time.Hour)))
		n.run(200*7, xid)
		files, err := filepath.Glob(filepath.Join(directory, "*"))
		hidden, _ := filepath.Glob(filepath.Join(directory, ".*"))
		if len(n.List()) != 5 || len(files) != 7 || len(hidden) != 0 || err != nil {
			t.Errorf("%d recordings are listed, files %v %v, %v", len(n.List()), files, hidden, err)
		}
		size := n.List()[0].Bytes
		n.o.Bytes = size*3 + size/2
		must(t, n.tidy(time.Now()))
		testkit.Equal(t, fmt.Sprintf("recordings of %d bytes within %d", size, n.o.Bytes), 3, len(n.List()))
		next := newNode(t, directory)
		must(t, next.tidy(time.Now()))
		testkit.Equal(t, "the next process lists", n.List(), next.List())
		n.o.Bytes = 100
		n.run(200, xid)
		if files, _ := filepath.Glob(filepath.Join(directory, "*")); len(files) != 2 {
			t.Errorf("files that are larger than the limit: %v", files)
		}
		e := events.Event{}
		for len(n.told.C) > 0 {
			e = <-n.told.C
		}
		if !e.Bad || !strings.Contains(e.Text, "cannot write a recording") || !n.began.IsZero() {
			t.Errorf("the last event is %q; the recording that failed delays the next: %v", e.Text, n.began)
		}
	})
}

func TestNamesAreChecked(t *testing.T) {
	directory := private(t)
	n := newNode(t, directory)
	must(t, n.tidy(time.Now()))
	good := "recording-19990101-000000.000-xid.om.zst"
	must(t, os.WriteFile(filepath.Join(directory, "..", good), nil, 0o600))
	must(t, os.Symlink("../"+good, filepath.Join(directory, "recording-19990101-000000.001-xid.om.zst")))
	must(t, os.Mkdir(filepath.Join(directory, "recording-19990101-000000.002-xid.om.zst"), 0o700))
	for _, name := range []string{
		"", ".", "..", "../" + good, "x/" + good, good + "\n", good, "." + good, strings.Replace(good, "xid", "../xid", 1),
		"recording-19990101-000000.001-xid.om.zst", "recording-19990101-000000.002-xid.om.zst",
	} {
		f, err := n.Open(name)
		testkit.ErrorIf(t, err == nil, "%q is opened: %v", name, f)
	}
	_, err := n.Open(good)
	testkit.ErrorIf(t, !errors.Is(err, fs.ErrNotExist), "a recording that is not there: %v", err)
}

// failing is a writer that fails after left bytes, like a full disk.
type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// written returns samples encoded as a recording.
func written(t testing.TB, h *Header, page exposition.Options, samples map[int][]Sample) []byte {
	var b bytes.Buffer
	err := write(&b, h, listsOf(t, h), page, samplesOf(h, samples))
	must(t, err)
	return b.Bytes()
}

func listsOf(t testing.TB, h *Header) (out []field.List) {
	for _, text := range h.Lists {
		list, _, err := field.Parse(strings.NewReader(text), field.ParseOptions{})
		must(t, err)
		out = append(out, list)
	}
	return out
}

func samplesOf(h *Header, samples map[int][]Sample) func(rows.Series) iter.Seq2[int64, float64] {
	return func(s rows.Series) iter.Seq2[int64, float64] {
		all := samples[slices.IndexFunc(h.Series, func(x rows.Series) bool { return fmt.Sprint(x) == fmt.Sprint(s) })]
		return func(yield func(int64, float64) bool) {
			for _, x := range all {
				if !yield(x.Time, x.Value) {
					return
				}
			}
		}
	}
}

// example returns a larger recording: 10 series of the page, and 10 others.
func example() (h *Header, samples map[int][]Sample) {
	h = &Header{
		Format: format, Recording: rows.Recording{Name: "x", From: time.UnixMilli(0).UTC(), Until: time.UnixMilli(1000_000).UTC()},
		Lists: []string{counters}, Devices: []Device{{Interval: time.Second, Device: collector.Device{ID: "GPU-0"}}},
		Verdicts: []events.Verdict{{Device: collector.Device{ID: "GPU-0"}, State: events.Degraded}},
	}
	samples = make(map[int][]Sample)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 20 {
		h.Series = append(h.Series, rows.Series{Device: "GPU-0", Field: 155, Labels: []collector.Label{{Name: "n", Value: fmt.Sprint(i)}}, Buffered: i >= 10})
		for at := range int64(1000) {
			samples[i] = append(samples[i], Sample{at * 1000, r.Float64()})
		}
	}
	return h, samples
}

func encoded(t testing.TB) []byte {
	h, samples := example()
	return written(t, h, exposition.Options{}, samples)
}

// text returns the decompressed content.
func text(t testing.TB, file []byte) string {
	z, err := zstd.NewReader(bytes.NewReader(file))
	must(t, err)
	defer z.Close()
	out := testkit.Get(io.ReadAll(z))(t)
	return string(out)
}

func TestAFullDisk(t *testing.T) {
	h, samples := example()
	size := len(encoded(t))
	for left := 0; left < size; left += 1 + size/50 {
		err := write(&failing{left}, h, listsOf(t, h), exposition.Options{}, samplesOf(h, samples))
		testkit.ErrorIf(t, !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "\n"), "no room after %d of %d bytes: %v", left, size, err)
	}
}

func TestFilesThatAreNotWholeAreRefused(t *testing.T) {
	whole := encoded(t)
	testkit.Get(Read(bytes.NewReader(whole)))(t)
	for n := 0; n < len(whole); n += 1 + len(whole)/200 {
		_, err := Read(bytes.NewReader(whole[:n]))
		testkit.Has(t, fmt.Sprintf("error for %d of %d bytes", n, len(whole)), fmt.Sprint(err), "not whole")
	}
	lines := func(change func([]string) []string) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b)
		must(t, err)
		_, err = io.WriteString(w, strings.Join(change(strings.SplitAfter(text(t, whole), "\n")), ""))
		must(t, errors.Join(err, w.Close()))
		return b.Bytes()
	}
	replace := func(line int, from, to string) []byte {
		return lines(func(l []string) []string {
			l[line] = strings.Replace(l[line], from, to, 1)
			return l
		})
	}
	f := func(data []byte, want string) {
		t.Helper()
		_, err := Read(bytes.NewReader(data))
		testkit.Has(t, "error", fmt.Sprint(err), want)
	}
	f([]byte("# HELP x\n"), "the file is not one")
	f(lines(func(l []string) []string { return l[1:] }), "the file is not one")
	f(replace(0, `"format":3`, `"format":4`), "its format is 4")
	f(replace(0, `"State":2`, `"State":4`), `the verdict on device "GPU-0"`)
	f(replace(0, `"list":0`, `"list":1`), "has list 1")
	f(replace(0, `"until":"1970-01-01T00:16:40Z"`, `"until":"1970-01-03T00:00:00Z"`), "is not what a recording can be")
	f(replace(0, "DCGM_FI_DEV_POWER_USAGE, gauge", "DCGM_FI_DEV_POWER_USAGE, gouge"), "list 0 of the recording")
	f(replace(0, `"device":"GPU-0"`, `"device":"GPU-1"`), `series of device "GPU-1"`)
	for _, time := range []string{" 10000000000000", " NaN", " x"} {
		f(replace(3, " 0.000", time), "and a time in seconds")
	}
	f(replace(3, " 0.000", ""), "line 4")
	trailer := func(from, to string) []byte {
		return lines(func(l []string) []string {
			l[len(l)-3] = strings.Replace(l[len(l)-3], from, to, 1)
			return l
		})
	}
	f(trailer("[0,1", "[0,20"), "is said to be number 20 of 20")
	f(trailer("[0,1", "[-2,1"), "is said to be number -2 of 20")
	f(trailer("[0,1", "[0"), "names 19 series, the file has 20")
	f(trailer("[0,1", "[,"), "invalid character")
	f(lines(func(l []string) []string { return append(l, "# EOF\n") }), "something follows the end")
	f(lines(func(l []string) []string { return slices.Delete(l, 3, 1003) }), "names 20 series, the file has")
	f(lines(func(l []string) []string { return l[:len(l)-2] }), "not whole")
	f(lines(func([]string) []string { return []string{strings.Repeat("x", maxLine+1)} }), "has more than 32 MiB")
	f(lines(func(l []string) []string { l[1] = "#" + strings.Repeat(" ", maxLine) + "\n"; return l }), "has more than 32 MiB")
}

func FuzzRead(f *testing.F) {
	f.Add(encoded(f))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Read(bytes.NewReader(data))
		testkit.Equal(t, "there is a recording, or else an error", r != nil, err == nil)
	})
}

// FuzzLines fuzzes the decompressed content.
func FuzzLines(f *testing.F) {
	h, samples := example()
	h.Series = h.Series[:2]
	f.Add([]byte(text(f, written(f, h, exposition.Options{}, map[int][]Sample{0: samples[0][:3], 1: samples[1][:2]}))))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := zstd.NewWriter(nil)
		must(t, err)
		r, err := Read(bytes.NewReader(w.EncodeAll(data, nil)))
		testkit.Equal(t, "there is a recording, or else an error", r != nil, err == nil)
	})
}
