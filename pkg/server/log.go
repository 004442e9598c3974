package server

import (
	"bytes"
	"log" //nolint:depguard // the type that http.Server takes
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
)

// httpErrorLog takes what net/http says about single connections. Clients can
// cause it at will (a failed TLS handshake, say), so it is for debugging; a
// panic in a handler is our bug and an error.
func httpErrorLog(l *zap.Logger) *log.Logger { return log.New(errorWriter{l}, "", 0) }

type errorWriter struct{ log *zap.Logger }

func (w errorWriter) Write(p []byte) (int, error) {
	level := zap.DebugLevel
	if bytes.Contains(p, []byte("panic serving")) {
		level = zap.ErrorLevel
	}
	if e := w.log.Check(level, "net/http: "+string(bytes.TrimSpace(p))); e != nil {
		e.Write()
	}
	return len(p), nil
}

// toolkitLog is for exporter-toolkit, whose informational lines repeat ours.
func toolkitLog(l *zap.Logger) *slog.Logger {
	core := l.Core()
	if warnings, err := zapcore.NewIncreaseLevelCore(core, zap.WarnLevel); err == nil {
		core = warnings // an error says that the core's level is higher already
	}
	return slog.New(zapslog.NewHandler(core, zapslog.WithName(l.Name())))
}
