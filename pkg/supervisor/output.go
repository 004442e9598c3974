package supervisor

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	linesPerTick = 200  // log entries between two ticks; more are dropped and counted
	shownLines   = 10   // lines of libraries at level info in shownTicks; more are at level debug
	shownTicks   = 60   // about a minute
	maxLine      = 8192 // bytes; the rest of a longer line is dropped
)

// ChildLogger returns the logger of a child: its parent reads the entries from the child's standard error and writes
// them to its own log.
func ChildLogger(to io.Writer, level zapcore.Level) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		LevelKey: "level", NameKey: "logger", MessageKey: "msg",
		EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeDuration: zapcore.StringDurationEncoder,
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeName: zapcore.FullNameEncoder,
	})
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(to)), level))
}

// output receives a child's output: log entries, which go to our log, and lines of its libraries.
type output struct {
	log       *zap.Logger
	collector string
	pid       atomic.Int64
	echo      func(string)
	tail      stderrTail

	mu      sync.Mutex
	partial []byte // an incomplete line
	taken   int    // entries since the last tick
	dropped int
	ticks   int         // since shown began
	shown   int         // lines of libraries that are not at level debug, or would not be without the limit
	quiet   atomic.Bool // level debug in place of info: a start that only finds no devices again repeats its log
}

// Write receives pieces of lines. It never fails and never blocks.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(b)
	for {
		line, rest, ended := bytes.Cut(b, []byte{'\n'})
		if room := maxLine - len(o.partial); room > 0 {
			o.partial = append(o.partial, line[:min(len(line), room)]...)
		}
		if !ended {
			return n, nil
		}
		o.line(strings.ToValidUTF8(strings.TrimSuffix(string(o.partial), "\r"), "?"))
		o.partial, b = o.partial[:0], rest
	}
}

func (o *output) setQuiet(on bool) { o.quiet.Store(on) }

// flush handles a last line without a line end, and reports all lines that were not shown.
func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.partial) > 0 {
		o.line(strings.ToValidUTF8(string(o.partial), "?"))
		o.partial = nil
	}
	o.renew(true)
}

// tick renews the allowance of entries, and after shownTicks that of library lines.
func (o *output) tick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ticks++
	o.renew(o.ticks == shownTicks)
}

// renew reports the dropped entries and renews their allowance; with libraries set also that of library lines.
func (o *output) renew(libraries bool) {
	if o.dropped > 0 {
		o.log.Warn("dropped log entries of a child", zap.String("collector", o.collector), zap.Int("entries", o.dropped))
	}
	o.taken, o.dropped = 0, 0
	if !libraries {
		return
	}
	if hidden := o.shown - shownLines; hidden > 0 {
		o.log.Info("more output of libraries is logged at level debug", zap.String("collector", o.collector), zap.Int("lines", hidden))
	}
	o.ticks, o.shown = 0, 0
}

func (o *output) line(line string) {
	entry := parseEntry(line)
	if entry == nil {
		o.tail.appendLine(line)
		if o.echo != nil {
			o.echo(line)
		}
	}
	if o.taken++; o.taken > linesPerTick {
		o.dropped++
		return
	}
	if entry == nil {
		// The log of the child's end has the important lines of a crash, and the echo has each line on standard error.
		level := zapcore.DebugLevel
		if line != "" && o.tail.crash == 0 && o.echo == nil && !o.quiet.Load() {
			if o.shown++; o.shown <= shownLines {
				level = zapcore.InfoLevel
			}
		}
		o.log.Log(level, "output of a library", zap.String("collector", o.collector), zap.String("library_output", line), zap.Int64("pid", o.pid.Load()))
		return
	}
	log := o.log
	if name, ok := entry["logger"].(string); ok && name != "" {
		log = log.Named(name)
	}
	level, err := zapcore.ParseLevel(entry["level"].(string))
	if err != nil {
		level = zapcore.InfoLevel
	}
	if o.quiet.Load() && level == zapcore.InfoLevel {
		level = zapcore.DebugLevel
	}
	fields := []zap.Field{zap.String("collector", o.collector)}
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		switch key {
		case "logger", "level", "msg", "collector", "pid":
		default:
			fields = append(fields, zap.Any(key, entry[key]))
		}
	}
	// The bounds of the level: no entry of a child can end the parent.
	log.Log(min(max(level, zapcore.DebugLevel), zapcore.ErrorLevel), entry["msg"].(string), append(fields, zap.Int64("pid", o.pid.Load()))...)
}

// parseEntry returns the log entry in a line, or nil.
func parseEntry(line string) (entry map[string]any) {
	if !strings.HasPrefix(line, `{"level":"`) || json.Unmarshal([]byte(line), &entry) != nil {
		return nil
	}
	_, level := entry["level"].(string)
	_, msg := entry["msg"].(string)
	if !level || !msg {
		return nil
	}
	return entry
}
