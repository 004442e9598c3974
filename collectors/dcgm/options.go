// Package dcgm collects NVIDIA GPUs, NVSwitches and Grace CPUs through DCGM. It reads every field of the host engine,
// which is embedded in this process or a separate daemon.
//
// All calls go through a table of addresses (calls_linux.c). github.com/NVIDIA/go-dcgm supplies only the IDs and names of
// fields (pkg/field/dcgm.csv), because it keeps its connection in a private variable, which rules out calls for many
// entities, each of its values takes 4 KiB of Go memory, its watches wait for a whole poll, and a function that an older
// library lacks ends the process.
//
// The package starts no goroutine. The goroutine of a source makes the source's calls. A hanging call blocks that
// goroutine and Close.
package dcgm

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Options configure New. The zero value runs an embedded engine.
type Options struct {
	// Library is the path or soname of the only library to try. "" searches libdcgm.so.4 in the loader's path and then
	// in the packages' directories.
	Library string
	// Engine is the address of a host engine (see parseAddress); "" runs an embedded one.
	Engine string
	// ConnectTimeout is the limit for connecting; 0 means 5 s.
	ConnectTimeout time.Duration

	// The engine polls at the session's intervals. Zero values mean the defaults: 1 s and 30 s.
	Interval, SlowInterval time.Duration

	// FakeGPUs includes GPUs that were injected into the engine.
	FakeGPUs bool
	// LogFile is the log file of an embedded engine; "" disables the log.
	LogFile string
	// LogLevel is NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB; "" means NONE.
	LogLevel string

	// Log may be nil, which disables logging.
	Log *zap.Logger
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.SlowInterval = max(cmp.Or(o.SlowInterval, 30*time.Second), o.Interval)
	o.Log = cmp.Or(o.Log, zap.NewNop()).Named("dcgm").With(zap.String("collector", "dcgm"))
	return o
}

// severities maps names to DCGM's DcgmLoggingSeverity_t.
var severities = map[string]int{"": 0, "NONE": 0, "FATAL": 1, "ERROR": 2, "WARN": 3, "INFO": 4, "DEBUG": 5, "VERB": 6}

// soname is DCGM 4's soname. Other major versions have other struct layouts.
const soname = "libdcgm.so.4"

// candidates returns the library files to try, in order. It returns an error for a name with another major version.
func (o Options) candidates() ([]string, error) {
	if o.Library == "" {
		names := []string{soname}
		for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/dcgm/lib64", "/usr/local/dcgm/lib"} {
			names = append(names, filepath.Join(dir, soname))
		}
		return names, nil
	}
	names := []string{o.Library}
	if target, err := filepath.EvalSymlinks(o.Library); err == nil {
		names = append(names, target)
	}
	for _, name := range names {
		version, isDCGM := strings.CutPrefix(filepath.Base(name), "libdcgm.so.")
		if isDCGM && version != "4" && !strings.HasPrefix(version, "4.") {
			return nil, fmt.Errorf("library %s is of DCGM %s, and %s is needed", name, version, soname)
		}
	}
	return names[:1], nil
}

// engineName returns the engine's name for messages.
func (o Options) engineName() string { return cmp.Or(o.Engine, "embedded") }

// shortVersion returns the version number in DCGM's description of itself.
func shortVersion(info string) string {
	for pair := range strings.SplitSeq(info, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return value
		}
	}
	return "unknown"
}
