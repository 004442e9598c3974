package exporter

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/config"
)

// NewLogger logs to b: lines for people, or JSON for collectors of logs. Both have RFC 3339 times with milliseconds.
func NewLogger(c *config.Config, b *Backlog) *zap.Logger { return newLoggerAt(c, b, c.LogLevel()) }

// newLoggerAt is newLogger with a variable level.
func newLoggerAt(c *config.Config, b *Backlog, level zapcore.LevelEnabler) *zap.Logger {
	encoder := newEncoder(c)
	b.reportWith(encoder)
	return zap.New(zapcore.NewCore(encoder, b, level))
}

func newEncoder(c *config.Config) zapcore.Encoder {
	e := zap.NewProductionEncoderConfig()
	e.TimeKey = "time"
	e.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
	e.EncodeDuration = zapcore.StringDurationEncoder
	if c.Log.Format == config.LogText {
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		e.ConsoleSeparator = " "
		return nameEncoder{zapcore.NewConsoleEncoder(e)}
	}
	return zapcore.NewJSONEncoder(e)
}

// nameEncoder writes the name of the logger as a field, as JSON does, not in front of the message.
type nameEncoder struct{ zapcore.Encoder }

func (e nameEncoder) Clone() zapcore.Encoder { return nameEncoder{e.Encoder.Clone()} }

func (e nameEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	if entry.LoggerName != "" {
		fields = append([]zapcore.Field{zap.String("logger", entry.LoggerName)}, fields...)
		entry.LoggerName = ""
	}
	return e.Encoder.EncodeEntry(entry, fields)
}

const (
	backlogBytes = 1 << 20                // bytes of lines that wait to be written
	flushWithin  = 500 * time.Millisecond // time for waiting lines when the process ends
)

// Backlog buffers standard error, so that nothing ever waits for its reader, a terminal or a disk. It drops
// and counts lines that do not fit, and later writes a line with their number. It is a zapcore.WriteSyncer.
type Backlog struct {
	to   io.Writer
	done chan struct{} // closed when the last line is written

	mu      sync.Mutex
	wake    *sync.Cond // waiting or ended has changed
	started bool
	ended   bool
	waiting []byte
	reports *zap.Logger // of dropped lines; its output is the field to
	dropped uint64      // lines
	unsaid  uint64      // dropped lines that no line has reported yet
}

// NewBacklog returns a Backlog in front of to. Its first line starts it.
func NewBacklog(to io.Writer) *Backlog {
	b := &Backlog{to: to, done: make(chan struct{})}
	b.wake = sync.NewCond(&b.mu)
	b.reportWith(newEncoder(config.Default()))
	return b
}

// reportWith sets the format of the line about dropped lines.
func (b *Backlog) reportWith(e zapcore.Encoder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports = zap.New(zapcore.NewCore(e, zapcore.AddSync(b.to), zap.WarnLevel)).Named("log")
}

// Write takes whole lines. It never fails and never waits.
func (b *Backlog) Write(lines []byte) (int, error) {
	b.add(lines, backlogBytes)
	return len(lines), nil
}

// Sync does nothing: it would wait.
func (b *Backlog) Sync() error { return nil }

// line writes a line of a library's log, without a line end. It leaves room for our own lines.
func (b *Backlog) line(s string) { b.add(append([]byte(s), '\n'), backlogBytes/2) }

func (b *Backlog) add(lines []byte, room int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting)+len(lines) > room {
		b.dropLocked(lines)
		return
	}
	b.waiting = append(b.waiting, lines...)
	if !b.started {
		b.started = true
		go b.run()
	}
	b.wake.Signal()
}

func (b *Backlog) dropLocked(lines []byte) {
	n := uint64(max(1, bytes.Count(lines, []byte{'\n'})))
	b.dropped += n
	b.unsaid += n
}

// run writes waiting lines until Flush is called. A write that never returns is abandoned at the end of the process.
func (b *Backlog) run() {
	defer close(b.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for len(b.waiting) == 0 {
			if b.ended {
				return
			}
			b.wake.Wait()
		}
		lines, unsaid, reports := b.waiting, b.unsaid, b.reports
		b.waiting, b.unsaid = nil, 0
		b.mu.Unlock()
		_, err := b.to.Write(lines)
		if err == nil && unsaid > 0 {
			reports.Warn("dropped log lines: standard error was read too slowly", zap.Uint64("lines", unsaid))
		}
		b.mu.Lock()
		if err != nil { // the reader closed it
			b.dropLocked(lines)
			b.unsaid += unsaid
		}
	}
}

// Flush gives waiting lines a moment to be written. Nothing is written after it.
func (b *Backlog) Flush() {
	b.mu.Lock()
	b.ended = true
	started := b.started
	b.started = true
	b.wake.Signal()
	b.mu.Unlock()
	if !started {
		return
	}
	select {
	case <-b.done:
	case <-time.After(flushWithin):
	}
}

// Metric counts the lines that were dropped.
func (b *Backlog) Metric() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "warpgauge_log_lines_dropped_total", Help: "Lines of the log that were dropped because standard error was read too slowly or is closed."}, func() float64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return float64(b.dropped)
	})
}
