package kernellog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/file"
)

const bootID = "5e1b4f0a-0000-4000-8000-000000000001"

func newTestLog(path string, event func(Event)) *Log {
	return New(Options{Path: path, Event: event, Logger: zap.NewNop()})
}

// xidRecord returns the record of an XID with a sequence number.
func xidRecord(seq, code int) string {
	return fmt.Sprintf("3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): %d, pid=1, name=python, x\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n", seq, seq*1000, code)
}

// rig is a followed file with the events read from it.
type rig struct {
	sync.Mutex
	t           *testing.T
	path, state string
	boot        string
	codes       []int
	events      []Event
	end         func()
	log         *Log
	logs        *observer.ObservedLogs
	read        func(fd int, p []byte) (int, error)
	uptime      time.Duration
}

func newRig(t *testing.T) *rig {
	dir := t.TempDir()
	return &rig{t: t, path: filepath.Join(dir, "kmsg"), state: filepath.Join(dir, "state"), boot: bootID, end: func() {}}
}

// write appends to the file.
func (r *rig) write(text string) {
	r.t.Helper()
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(r.t, err)
	testkit.Get(f.WriteString(text))(r.t)
	must(r.t, f.Close())
}

// start follows the file until stop. The test runs in a synctest bubble.
func (r *rig) start() {
	core, logs := observer.New(zap.InfoLevel)
	r.logs = logs
	o := Options{Path: r.path, BootID: r.boot, Logger: zap.New(core)}
	if r.state != "" {
		o.Store = file.Private{Path: r.state, Of: "health", Flag: "health-directory"}
	}
	o.Event = func(e Event) {
		r.Lock()
		defer r.Unlock()
		r.codes = append(r.codes, e.Code)
		r.events = append(r.events, e)
	}
	r.log = New(o)
	r.log.uptime = func() time.Duration { return r.uptime }
	if r.read != nil {
		r.log.read = r.read
		if r.uptime > 0 {
			r.log.o.Path = os.DevNull // a device
		}
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.log.Run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	r.end = func() { cancel(); <-done; r.end = func() {} }
	r.pass(time.Second)
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d) // bubble time
	synctest.Wait()
}

// want compares the codes of the events since its last call.
func (r *rig) want(what string, codes ...int) {
	r.t.Helper()
	r.pass(2 * time.Second)
	r.Lock()
	defer r.Unlock()
	testkit.Equal(r.t, what+": XIDs", codes, r.codes)
	r.codes = nil
}

// The first saved position is that of the last old record, however many polls it takes to get there.
func TestManyOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.read = func(fd int, p []byte) (int, error) { return unix.Read(fd, p[:32]) }
		for i := range batch {
			r.write(xidRecord(i, 79))
		}
		r.start()
		if text, err := os.ReadFile(filepath.Join(r.state, stateFile)); err != nil || string(text) != fmt.Sprintln(r.boot, batch-1) {
			t.Errorf("saved %q, %v", text, err)
		}
		r.want("nothing but old records")
		r.end()
	})
}

// TestFollow: restarts, rotation and a new boot. Each event is reported once.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.write(xidRecord(10, 1))
		r.start()
		r.want("what was there before the first start")
		r.write(xidRecord(11, 31) + "6,12,12000,-;nothing\n" + xidRecord(13, 13))
		r.want("two new ones", 31, 13)
		r.write("3,14,14000,-;NVRM: Xid (PCI:00")
		r.want("half a line")
		r.write("00:3b:00): 79, x\n")
		r.want("the other half", 79)

		must(t, os.Rename(r.path, r.path+".1"))
		r.want("no file while it is rotated")
		r.write(xidRecord(14, 79) + xidRecord(15, 48) + "6,15,15000,-;" + strings.Repeat("x", 1000) + "\n")
		r.want("the next file, which repeats a record and is longer", 48)
		must(t, os.Truncate(r.path, 0))
		r.want("a file that is cut")
		r.write(xidRecord(16, 63))
		r.want("the same file after that", 63)
		testkit.Equal(t, "records read, each once", uint64(9), r.log.lines.Load())
		r.end()

		r.write(xidRecord(17, 64))
		r.start()
		r.want("what came while nothing ran, and shortly before", 63, 64)
		r.end()
		r.start()
		r.want("another restart")
		r.end()

		r.boot = "another"
		must(t, os.WriteFile(r.path, []byte(xidRecord(3, 92)), 0o644))
		r.start()
		r.want("another boot, whose numbers begin again", 92)
		r.end()

		must(t, os.WriteFile(filepath.Join(r.state, stateFile), []byte("another -x"), 0o600))
		r.start()
		r.want("state that is damaged")
		testkit.Equal(t, "warnings of damaged state", 1, r.logs.FilterMessageSnippet("cannot read the saved kernel log position").Len())
		r.write(xidRecord(18, 79) + xidRecord(2, 92) + xidRecord(18, 79) + xidRecord(19, 95))
		r.want("a copy that begins again", 79, 95)
		r.end()

		r.state = ""
		r.start()
		r.want("what was there before, without a directory")
		r.end()
	})
}

// TestForged: a line written by a program is never taken for the kernel's. /dev/kmsg gives such
// lines a facility other than 0, whatever they request:
// https://docs.kernel.org/admin-guide/abi-testing.html (/dev/kmsg).
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.write(xidRecord(1, 1))
		r.start()
		const text = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"
		r.write("12,2,1,-;" + text + "\n" + // facility user, warning
			"11,3,1,-;" + text + "\n" + "27,4,1,-;" + text + "\n" + "8,5,1,-;" + text + "\n" +
			"6,6,1,-;x\\x0a3,7,1,-;" + text + "\n" + // a line break inside a text
			"6,7,1,-;x\n 3,8,1,-;" + text + "\n" + // a continuation line
			"-3,8,1,-;" + text + "\n" + ",9,1,-;" + text + "\n" + "3;" + text + "\n" + text + "\n")
		r.want("forged lines")
		r.write("3,20,1,-,caller=T1;" + text + "\n")
		r.want("the kernel's own", 79)
		r.end()
	})
}

// kmsg simulates the device: each read returns one record, and a reader that is too slow gets EPIPE.
type kmsg struct {
	sync.Mutex
	records []string
	next    int
	first   int // oldest remaining record
	reads   int
}

func (k *kmsg) read(_ int, p []byte) (int, error) {
	k.Lock()
	defer k.Unlock()
	k.reads++
	switch {
	case k.next < k.first:
		k.next = k.first
		return 0, unix.EPIPE
	case k.next == len(k.records):
		return 0, unix.EAGAIN
	}
	k.next++
	return copy(p, k.records[k.next-1]), nil
}

// count sets the number of reads and returns the old number.
func (k *kmsg) count(n int) (before int) {
	k.Lock()
	defer k.Unlock()
	before, k.reads = k.reads, n
	return before
}

func (k *kmsg) add(records ...string) {
	k.Lock()
	defer k.Unlock()
	k.records = append(k.records, records...)
}

// TestOverrun: overwritten records are counted, and later records are read.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k := newRig(t), &kmsg{}
		r.read = k.read
		r.write("")
		for i := range 5000 {
			k.records = append(k.records, fmt.Sprintf("6,%d,%d,-;noise\n", i, i))
		}
		r.start()
		k.Lock()
		for i := 5000; i < 9000; i++ {
			k.records = append(k.records, fmt.Sprintf("6,%d,%d,-;noise\n", i, i))
		}
		k.first = 8000
		k.records = append(k.records, xidRecord(9000, 79))
		k.Unlock()
		r.want("an XID after an overrun", 79)
		testkit.Equal(t, "records lost and read", []uint64{3000, 6001}, []uint64{r.log.lost.Load(), r.log.lines.Load()})
		k.count(0)
		r.pass(10 * time.Second)
		testkit.AtMost(t, "reads in 10 s in which nothing is written", 11, k.count(0))
		r.end()
	})
}

// TestTimes: records from before the start get the time of the kernel's clock; new records get the
// current time, whatever the kernel's clock shows.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, k := newRig(t), &kmsg{}
		r.read, r.uptime = k.read, time.Hour
		r.write("")
		must(t, os.MkdirAll(r.state, 0o700))
		must(t, os.WriteFile(filepath.Join(r.state, stateFile), []byte("boot-before 77\n"), 0o600))
		start := time.Now()
		at := func(seq int, up time.Duration) string {
			return fmt.Sprintf("3,%d,%d,-;NVRM: Xid (PCI:0000:3b:00): 31, x\n", seq, up.Microseconds())
		}
		k.records = append(k.records, at(1, 10*time.Minute))
		r.start()
		k.add(at(2, 20*time.Minute)) // after 40 minutes of suspend, which the kernel's clock does not count
		r.pass(1500 * time.Millisecond)
		k.add(at(3, 20*time.Minute+time.Second), at(4, 100*time.Hour))
		r.pass(time.Second)
		r.end()
		var got []time.Duration
		for _, e := range r.events {
			got = append(got, e.Time.Sub(start).Round(time.Second))
		}
		testkit.Equal(t, "times of events since the start", []time.Duration{-50 * time.Minute, 2 * time.Second, 3 * time.Second, 3 * time.Second}, got)
	})
}

// TestNotReadable: an unreadable log is logged once, with advice, and opened again later.
func TestNotReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.pass(10 * time.Minute)
		if n := r.logs.Len(); n != 1 || r.log.Up() || !strings.Contains(fmt.Sprint(r.logs.All()[0].ContextMap()["advice"]), "/dev/kmsg") {
			t.Errorf("%d log lines of a file that is not there, up %v, want 1 with what to do: %v", n, r.log.Up(), r.logs.All())
		}
		r.write("")
		r.pass(time.Minute)
		testkit.Equal(t, "it is read once it is there", true, r.log.Up())
		r.write(xidRecord(1, 62))
		r.want("after that", 62)
		r.end()
		testkit.Equal(t, "up after the end", false, r.log.Up())
	})
	for err, want := range map[error]string{unix.EPERM: "CAP_SYSLOG", unix.EACCES: "CAP_SYSLOG", unix.ENOENT: "give the container"} {
		core, logs := observer.New(zap.InfoLevel)
		l := New(Options{Path: Device, Logger: zap.New(core)})
		l.logUnreadable(&os.PathError{Op: "open", Path: Device, Err: err})
		testkit.Has(t, fmt.Sprintf("%v: advice", err), fmt.Sprint(logs.All()[0].ContextMap()["advice"]), want)
	}
}

// TestFIFO: records from a FIFO are read; its writer may close and reopen it.
func TestFIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		must(t, unix.Mkfifo(r.path, 0o600))
		r.start()
		for seq := range 3 {
			r.write(xidRecord(seq, 40+seq))
			r.want("a writer", 40+seq)
		}
		r.end()
	})
}

// TestLongLines: an endless line uses no more memory than the buffer, and the next line is read.
func TestLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.write(xidRecord(1, 1))
		r.start()
		for range 10 {
			r.write("3,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, " + strings.Repeat("x", bufferSize))
			r.pass(time.Second)
		}
		r.write("\n" + xidRecord(3, 31))
		r.want("the line after it", 31)
		r.end()
		testkit.AtMost(t, "bytes of a line without end", 2*bufferSize, cap(r.log.partial))
	})
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(xidRecord(1, 79)), 7)
	f.Add([]byte("3,1,1,-;NVRM: Xid (PCI:0000:3b:00): 31, \\x0a\\x\\xzz\n DEVICE=+pci:x\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, part int) {
		n := 0
		l := newTestLog("", func(Event) { n++ })
		whole := newTestLog("", func(Event) { n-- })
		for d := range slices.Chunk(data, max(1, part)) {
			l.feed(d)
		}
		whole.feed(data)
		l.flush()
		whole.flush()
		testkit.Equal(t, fmt.Sprintf("%q in parts of %d: events more than as a whole", data, part), 0, n)
	})
}
