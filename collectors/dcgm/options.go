// Package dcgm is the collector of NVIDIA GPUs, NVSwitches and Grace CPUs through
// DCGM: every field that the host engine has, embedded in this process or in a
// separate daemon.
//
// All calls go through a table of addresses (calls_linux.c), because a value on
// its way must not cost what github.com/NVIDIA/go-dcgm pays: its connection is a
// private variable of the package, so that no call for many entities at once can
// use it, each value is 4 KiB of Go memory, watches wait for a whole poll, and a
// function that an older library lacks ends the process.
package dcgm

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Options of New. The zero value runs an embedded engine.
type Options struct {
	// Library is the path or soname of the library. It is tried alone; "" looks
	// for libdcgm.so.4 by the loader's path and then where packages put it.
	Library string
	// Engine is where a host engine listens (see parseAddress); "" runs an embedded one.
	Engine string
	// ConnectTimeout is how long a connection may take; 0 means 5 s.
	ConnectTimeout time.Duration

	// Intervals of the session, at which the engine is asked to read; zero values mean
	// the defaults: 1 s, 30 s, 5 min.
	Interval, SlowInterval, StaticInterval time.Duration

	// FakeGPUs takes GPUs into account that were injected into the engine.
	FakeGPUs bool
	// LogFile is where an embedded engine writes its log; "" means nowhere.
	LogFile string
	// LogLevel is NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB; "" means NONE.
	LogLevel string

	// Root is where /usr is; "" means "/".
	Root string
	// Log is nil to log nothing.
	Log *zap.Logger
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.SlowInterval = max(cmp.Or(o.SlowInterval, 30*time.Second), o.Interval)
	o.StaticInterval = max(cmp.Or(o.StaticInterval, 5*time.Minute), o.SlowInterval)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Log = o.Log.Named("dcgm").With(zap.String("collector", "dcgm"))
	return o
}

// severities are DCGM's DcgmLoggingSeverity_t.
var severities = map[string]int{"": 0, "NONE": 0, "FATAL": 1, "ERROR": 2, "WARN": 3, "INFO": 4, "DEBUG": 5, "VERB": 6}

// soname is DCGM 4's. Other major versions have other layouts.
const soname = "libdcgm.so.4"

// candidates are where the library is looked for, in order. A library of another
// major version is refused by its name.
func (o Options) candidates() ([]string, error) {
	if o.Library == "" {
		names := []string{soname}
		for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/dcgm/lib64", "usr/local/dcgm/lib"} {
			names = append(names, filepath.Join("/", o.Root, dir, soname))
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

// engineName is how messages call the engine.
func (o Options) engineName() string {
	if o.Engine == "" {
		return "embedded"
	}
	return o.Engine
}

// shortVersion is the number in DCGM's description of itself.
func shortVersion(info string) string {
	for pair := range strings.SplitSeq(info, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return value
		}
	}
	return "unknown"
}
