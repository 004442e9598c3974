package isolation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// logQueue is how many entries wait for the parent at most.
const logQueue = 256

// logSender takes log entries from any goroutine without ever blocking, and
// hands them to the parent from one. What does not fit is counted.
type logSender struct {
	level zapcore.Level
	wake  chan struct{}

	mu      sync.Mutex
	queue   []logEntry
	dropped uint64

	sending sync.Mutex // held while entries are on their way; never while mu is
}

func newLogSender(level zapcore.Level) *logSender {
	return &logSender{level: level, wake: make(chan struct{}, 1)}
}

func (l *logSender) push(e logEntry) {
	l.mu.Lock()
	if len(l.queue) < logQueue {
		e.dropped, l.dropped = l.dropped, 0
		l.queue = append(l.queue, e)
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// flush sends what waits, after what another flush has begun to send: the process may
// end when it returns.
func (l *logSender) flush(c *conn) {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	for i := range queue {
		if c.send(kindLog, &queue[i]) != nil {
			return // the parent is gone, which the listener notices
		}
	}
}

func (l *logSender) run(ctx context.Context, c *conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.flush(c)
		}
	}
}

// core is the zap core over a logSender.
func (l *logSender) core() zapcore.Core { return &logCore{to: l} }

type logCore struct {
	to     *logSender
	fields []zapcore.Field
}

var _ zapcore.Core = (*logCore)(nil)

func (c *logCore) Enabled(level zapcore.Level) bool { return level >= c.to.level }

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.to, slices.Concat(c.fields, fields)}
}

func (c *logCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	m := logEntry{level: int(e.Level), time: e.Time.UnixNano(), name: e.LoggerName, text: e.Message}
	for _, f := range slices.Concat(c.fields, fields) {
		m.fields = append(m.fields, flatten(f)...)
	}
	c.to.push(m)
	return nil
}

func (c *logCore) Sync() error { return nil }

// flatten turns a field into texts, as our encoders write them.
func flatten(f zapcore.Field) (out []logField) {
	e := zapcore.NewMapObjectEncoder()
	f.AddTo(e)
	for key, v := range e.Fields {
		field := logField{key: key}
		switch v := v.(type) {
		case string:
			field.value = v
		case time.Duration:
			field.value = v.String()
		case time.Time:
			field.value = v.Format("2006-01-02T15:04:05.000Z07:00")
		default:
			field.value = fmt.Sprint(v)
			field.number = isNumber(v)
		}
		out = append(out, field)
	}
	slices.SortFunc(out, func(a, b logField) int { return strings.Compare(a.key, b.key) })
	return out
}

func isNumber(v any) bool {
	switch v.(type) {
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return true
	}
	return false
}
