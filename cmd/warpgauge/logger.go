package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/config"
)

// newLogger logs to w: lines for people, or JSON for collectors of logs. Both
// have RFC 3339 times with milliseconds.
func newLogger(c *config.Config, w io.Writer) *zap.Logger {
	e := zap.NewProductionEncoderConfig()
	e.TimeKey = "time"
	e.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if c.Log.Format == config.LogText {
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		e.ConsoleSeparator = " "
		e.EncodeName = func(name string, to zapcore.PrimitiveArrayEncoder) { to.AppendString(name + ":") }
		encoder = zapcore.NewConsoleEncoder(e)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), c.LogLevel())
	return zap.New(core)
}
