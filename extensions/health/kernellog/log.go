// Package kernellog reads reports about GPUs and NVSwitches from the kernel log: XIDs and SXids of NVIDIA's driver;
// resets, hung rings and RAS of amdgpu; PCIe errors. The vendors' libraries report some of them as well; a
// Deduplicator counts these once.
//
// Log.Run polls the log and never blocks in it. It uses at most a quarter of a core, however much is
// logged, and counts the records that the kernel overwrites meanwhile. Its goroutine calls Event.
package kernellog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"warpgauge/pkg/view"
)

// Device is the kernel log of Linux.
const Device = "/dev/kmsg"

const (
	// pollInterval applies while the log is quiet, because a wake-up costs more than a read. While
	// records come, busyInterval applies; the kernel buffers thousands of records in that time.
	pollInterval  = time.Second
	busyInterval  = 50 * time.Millisecond
	retryInterval = 30 * time.Second // between attempts to open it
	saveInterval  = time.Second
	lag           = 3 * time.Second // the saved position is this old, so that a restart repeats lines instead of losing verdicts
	batch         = 256             // reads between two checks of the clock
	rest          = 3               // pause after a batch, as a multiple of the working time
	bufferSize    = 16 << 10        // kernel records have at most 8 KiB
	stateFile     = "kernel-log"
)

// Options of New.
type Options struct {
	// Path is Device, or a file or FIFO with records of the present boot in the same format.
	Path string
	// Store keeps the read position; nil keeps it in memory only. Without a stored position, existing records are skipped.
	Store  Store
	BootID string      // of the running kernel; "": unknown, and no position is stored
	Event  func(Event) // called for each event, in order; it must not block
	Logger *zap.Logger
}

// Store has files, as file.Private describes.
type Store interface {
	Read(name string, limit int64) ([]byte, error)
	Write(name string, text []byte) error
}

// Log follows the kernel log. Run does the work. Up and the metrics are safe for concurrent use.
type Log struct {
	o      Options
	log    *zap.Logger
	read   func(fd int, p []byte) (int, error)
	uptime func() time.Duration

	up                  atomic.Bool
	lines, lost         atomic.Uint64
	last                int64 // sequence number of the newest record read, or -1
	skip                bool  // records are old until the end is reached
	saved, reported     int64 // the saved position, or -2; last at the newest event
	safe, mark          int64 // values of last: at least a lag ago, and at marked
	savedAt, marked     time.Time
	offset              time.Duration // kernel clock to Unix time
	live                bool          // the end was reached, so the next record is new
	parser              parser
	partial             []byte // of an incomplete line
	overlong            bool   // drop the rest of a long line
	pending             record
	fd                  int
	mode                uint32 // type of the file, S_IF…
	inode               uint64
	position            int64 // in a regular file
	unreadable, unsaved bool  // already logged
}

// record is a relevant record that continuation lines may follow. Without a text there is none.
type record struct {
	text, device string
	at           time.Duration // since boot, by the kernel's clock
	seq          int64
}

// New returns a Log that does not run yet.
func New(o Options) *Log {
	return &Log{
		o: o, log: o.Logger.Named("kernel_log"), read: unix.Read, uptime: uptime,
		last: -1, saved: -2, reported: -1, fd: -1, partial: make([]byte, 0, bufferSize),
	}
}

// Up reports whether the log is read.
func (l *Log) Up() bool { return l.up.Load() }

// Run follows the log until ctx ends. It logs once if the log is unreadable, and keeps trying.
func (l *Log) Run(ctx context.Context) error {
	l.load()
	buffer := make([]byte, bufferSize)
	for ctx.Err() == nil {
		err := l.open()
		for err == nil && ctx.Err() == nil {
			var more bool
			start, before := time.Now(), l.lines.Load()
			more, err = l.drain(buffer)
			l.save(start, false)
			switch {
			case more:
				wait(ctx, time.After(min(rest*time.Since(start), time.Second)))
			case l.lines.Load() > before:
				wait(ctx, time.After(busyInterval))
			default:
				wait(ctx, view.Tick(pollInterval))
			}
		}
		l.close()
		if err != nil {
			l.logUnreadable(err)
			wait(ctx, time.After(retryInterval))
		}
	}
	l.save(time.Now(), true)
	return nil
}

func wait(ctx context.Context, until <-chan time.Time) {
	select {
	case <-ctx.Done():
	case <-until:
	}
}

func (l *Log) open() error {
	fd, err := unix.Open(l.o.Path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: l.o.Path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	l.fd, l.inode, l.position = fd, st.Ino, 0
	l.mode = st.Mode & unix.S_IFMT
	l.skip = l.skip && l.mode != unix.S_IFIFO // every record in a FIFO is new
	l.live = false
	l.compareClocks()
	if !l.up.Swap(true) {
		l.log.Info("reading the kernel's log", zap.String("path", l.o.Path))
	}
	return nil
}

func (l *Log) compareClocks() { l.offset = time.Duration(time.Now().UnixNano()) - l.uptime() }

func (l *Log) close() {
	l.up.Store(false)
	if l.fd >= 0 {
		_ = unix.Close(l.fd) // opened for reading only
		l.fd = -1
	}
	l.partial, l.overlong, l.pending = l.partial[:0], false, record{}
}

// logUnreadable logs once, with advice, why the kernel log is not read.
func (l *Log) logUnreadable(err error) {
	if l.unreadable {
		return
	}
	l.unreadable = true
	advice := "the file must have records in the form of /dev/kmsg, and this process must be allowed to read it"
	switch {
	case l.o.Path != Device:
	case errors.Is(err, fs.ErrNotExist):
		advice = "give the container the device /dev/kmsg, or set --kernel-log=off"
	case errors.Is(err, fs.ErrPermission):
		advice = "needs CAP_SYSLOG if kernel.dmesg_restrict is 1, read access to /dev/kmsg, and in a container that its device rules allow it; or set --kernel-log=off"
	}
	l.log.Info("not reading the kernel's log; XIDs and other faults come from the vendors' libraries alone; see docs/health.md",
		zap.Error(err), zap.String("advice", advice))
}

// drain reads the available records. more reports that it stopped early to limit its CPU time.
func (l *Log) drain(buffer []byte) (more bool, err error) {
	for range batch {
		n, err := l.read(l.fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			// A signal; records overwritten before they were read, as the sequence numbers show; or an oversized record.
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			l.flush()
			l.live, l.skip = l.mode == unix.S_IFCHR, false // a copy may repeat old records
			if !l.live {
				l.compareClocks()
			}
			return false, l.rotate()
		case err != nil:
			return false, &fs.PathError{Op: "read", Path: l.o.Path, Err: err}
		default:
			l.position += int64(n)
			l.feed(buffer[:n])
		}
	}
	return true, nil
}

// rotate switches to a new file with the same name, or restarts a truncated file.
func (l *Log) rotate() error {
	if l.mode != unix.S_IFREG {
		return nil
	}
	var st unix.Stat_t
	err := unix.Stat(l.o.Path, &st)
	if err != nil || st.Ino == l.inode && st.Size >= l.position {
		return nil //nolint:nilerr // during a rotation there is no file
	}
	l.close()
	return l.open()
}

// feed processes input: one record from the device, or any part of a file.
func (l *Log) feed(data []byte) {
	for len(data) > 0 {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		switch data = rest; {
		case !whole:
			if l.overlong = l.overlong || len(l.partial)+len(line) > bufferSize; !l.overlong {
				l.partial = append(l.partial, line...)
			}
		case l.overlong:
			l.partial, l.overlong = l.partial[:0], false
		case len(l.partial) > 0:
			l.addLine(append(l.partial, line...))
			l.partial = l.partial[:0]
		default:
			l.addLine(line)
		}
	}
}

// addLine processes a line: a record, or the continuation of the previous one.
func (l *Log) addLine(line []byte) {
	if len(line) > 0 && line[0] == ' ' {
		if device, ok := bytes.CutPrefix(line, []byte(" DEVICE=")); ok && l.pending.text != "" {
			l.pending.device = string(device)
		}
		return
	}
	l.flush()
	// priority,sequence,microseconds,flags;text
	head, text, ok := bytes.Cut(line, []byte(";"))
	words := strings.SplitN(string(head), ",", 4)
	if !ok || len(words) < 3 {
		return
	}
	var n [3]int64
	for i := range n {
		v, err := strconv.ParseUint(words[i], 10, 63)
		if err != nil {
			return
		}
		n[i] = int64(v)
	}
	priority, seq, at := n[0], n[1], time.Duration(n[2])*time.Microsecond
	l.lines.Add(1)
	if seq <= l.last {
		return // already read, by the previous process, from the previous file, or in a copy that begins again
	}
	if l.last >= 0 {
		l.lost.Add(uint64(seq - l.last - 1))
	}
	l.last = seq
	if l.live {
		// The record was written since the last poll. The two clocks drift apart, and the kernel's clock stops during suspend.
		l.live, l.offset = false, time.Duration(time.Now().UnixNano())-at
	}
	// The kernel reserves facility 0: a line with another facility, for example from a container that
	// writes to /dev/kmsg, is not the kernel's.
	if l.skip || priority >= 8 || !relevant(text) {
		return
	}
	l.pending = record{text: unescape(text), at: at, seq: seq}
}

// flush parses the pending record with its continuation lines.
func (l *Log) flush() {
	if l.pending.text == "" {
		return
	}
	p := l.pending
	l.pending = record{}
	e, ok := l.parser.parse(p.text, p.device)
	if !ok {
		return
	}
	now := time.Now()
	if e.Time = time.Unix(0, int64(l.offset+p.at)); e.Time.After(now) {
		e.Time = now
	}
	l.reported = p.seq
	l.o.Event(e)
}

var escaped = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// unescape decodes the kernel's escapes of unprintable characters, such as \x0a.
func unescape(text []byte) string {
	return string(escaped.ReplaceAllFunc(text, func(e []byte) []byte {
		c, _ := strconv.ParseUint(string(e[2:]), 16, 8) // the pattern ensures valid digits
		return []byte{byte(c)}
	}))
}

// load reads the saved position.
func (l *Log) load() {
	l.skip = true
	if l.o.BootID == "" || l.o.Store == nil {
		return
	}
	text, err := l.o.Store.Read(stateFile, 256)
	if text != nil {
		err = l.resume(string(text))
	}
	if err != nil {
		l.log.Warn("cannot read the saved kernel log position", zap.Error(err))
	}
}

// resume continues at the saved position.
func (l *Log) resume(text string) error {
	line, whole := strings.CutSuffix(text, "\n")
	boot, number, _ := strings.Cut(line, " ")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !whole || seq < -1 {
		return fmt.Errorf("%s is damaged, records before now are skipped", stateFile)
	}
	l.skip = false // the position is from an earlier boot, so every record is new
	if boot == l.o.BootID {
		l.last, l.saved, l.reported, l.safe, l.mark = seq, seq, seq, seq, seq
	}
	return nil
}

// save stores a position after an event and at exit.
func (l *Log) save(now time.Time, ends bool) {
	if l.skip {
		return // the end of the older records is not reached
	}
	first := l.saved < -1 // so that a restart does not skip later records
	if first && l.marked.IsZero() {
		l.mark = l.last
	}
	if now.Sub(l.marked) >= lag {
		l.safe, l.mark, l.marked = l.mark, l.last, now
	}
	if l.o.Store == nil || l.o.BootID == "" || l.safe == l.saved || !ends && !first && (l.reported <= l.saved || now.Sub(l.savedAt) < saveInterval) {
		return
	}
	err := l.o.Store.Write(stateFile, fmt.Appendf(nil, "%s %d\n", l.o.BootID, l.safe))
	if l.savedAt = now; err == nil {
		l.saved = l.safe
	}
	if err != nil && !l.unsaved {
		l.unsaved = true
		l.log.Warn("cannot save the kernel log position; a restart may count events twice", zap.Error(err))
	}
}

// uptime returns the kernel log's clock, without its drift.
func uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // always available
	return time.Duration(ts.Nano())
}

// Metrics returns the metrics of the log.
func (l *Log) Metrics() []prometheus.Collector {
	up := map[bool]float64{true: 1}
	number := func(n *atomic.Uint64) func() float64 { return func() float64 { return float64(n.Load()) } }
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "warpgauge_kernel_log_up", Help: "1 if the kernel's log is read as a second source."},
			func() float64 { return up[l.Up()] }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "warpgauge_kernel_log_lines_total", Help: "Records of the kernel's log that were read."}, number(&l.lines)),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "warpgauge_kernel_log_lost_total",
			Help: "Records of the kernel's log that were overwritten before they were read."}, number(&l.lost)),
	}
}
