package extension

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"warpgauge/pkg/config"
)

// Settings holds the extension's flags.
type Settings struct {
	Age          time.Duration // of stored samples
	HistoryBytes int64

	Directory     string // "" disables the recorder
	Before, After time.Duration
	Files         int
	Bytes         int64
	Endpoint      bool // enable POST /-/record
}

// Keeps reports whether samples are stored.
func (s *Settings) Keeps() bool { return s.Age > 0 && s.HistoryBytes > 0 }

func defaults() Settings {
	return Settings{Age: 15 * time.Minute, HistoryBytes: 64 << 20, Before: time.Minute, After: 30 * time.Second, Files: 50, Bytes: 256 << 20}
}

const group config.Group = "History and recordings"

const flagRecorder = "recorder-directory"

// Flags adds the extension's flags.
func (s *Settings) Flags(set *config.Set) {
	set.Add(config.Section{Origin: config.Own, Check: s.check, Flags: []config.Flag{
		{
			Name: "history-age", Env: "WARPGAUGE_HISTORY_AGE", Group: group, Value: config.Duration(&s.Age),
			Metavar: "DURATION", Usage: "How long samples are kept in memory, each as it was taken. 0: no history.",
		},
		{
			Name: "history-bytes", Env: "WARPGAUGE_HISTORY_BYTES", Group: group, Value: config.Bytes(&s.HistoryBytes),
			Metavar: "SIZE", Usage: "Maximum memory for samples; the oldest are dropped first. 0: no history.",
		},
		{
			Name: flagRecorder, Env: "WARPGAUGE_RECORDER_DIRECTORY", Group: group, Value: config.Text(&s.Directory),
			Metavar: "DIR", Usage: "Directory in which the flight recorder writes the history around an XID, a lost or stalled device, throttling, or health that becomes failed. Unset: record nothing.",
		},
		{
			Name: "recorder-before", Env: "WARPGAUGE_RECORDER_BEFORE", Group: group, Value: config.Duration(&s.Before),
			Metavar: "DURATION", Needs: flagRecorder, Usage: "How much of the history before an incident to record.",
		},
		{
			Name: "recorder-after", Env: "WARPGAUGE_RECORDER_AFTER", Group: group, Value: config.Duration(&s.After),
			Metavar: "DURATION", Needs: flagRecorder, Usage: "How long to record after an incident.",
		},
		{
			Name: "recorder-files", Env: "WARPGAUGE_RECORDER_FILES", Group: group, Value: config.Int(&s.Files),
			Metavar: "N", Needs: flagRecorder, Usage: "Maximum number of recordings; the oldest are removed first.",
		},
		{
			Name: "recorder-bytes", Env: "WARPGAUGE_RECORDER_BYTES", Group: group, Value: config.Bytes(&s.Bytes),
			Metavar: "SIZE", Needs: flagRecorder, Usage: "Maximum size of all recordings; the oldest are removed first.",
		},
		{
			Name: "enable-record-endpoint", Env: "WARPGAUGE_ENABLE_RECORD_ENDPOINT", Group: group, Value: config.Bool(&s.Endpoint),
			Needs: flagRecorder, Usage: "Serve POST /-/record, which begins a recording.",
		},
	}})
}

// Limits of history and recordings.
const (
	minBytes       = 1 << 20 // less than one GPU with a series per field needs
	maxRecorded    = time.Hour
	recorderMargin = 10 * time.Second // from the last sample to the written file
)

func (s *Settings) check(*config.Config) error {
	if !s.Keeps() { // recordings need a history
		return nil
	}
	errs := []error{config.AtLeast("history-age", s.Age, time.Second)}
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(s.HistoryBytes < minBytes, "--history-bytes is %s: it must be at least 1MiB, or 0 for none", config.Bytes(&s.HistoryBytes))
	if s.Directory == "" {
		return errors.Join(errs...)
	}
	errs = append(errs, config.AtLeast("recorder-before", s.Before, time.Second), config.AtLeast("recorder-files", s.Files, 1))
	add(!filepath.IsAbs(s.Directory), "--%s is %q: write an absolute path", flagRecorder, s.Directory)
	add(s.Bytes < minBytes, "--recorder-bytes is %s: it must be at least 1MiB", config.Bytes(&s.Bytes))
	span := s.Before + s.After
	least := span + recorderMargin
	add(span > maxRecorded, "--recorder-before and --recorder-after are %s together: they can be at most 1h", config.Duration(&span))
	add(span <= maxRecorded && least > s.Age, "--recorder-before and --recorder-after are %s together: --history-age must be at least %s", config.Duration(&span), config.Duration(&least))
	return errors.Join(errs...)
}
