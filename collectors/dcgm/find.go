package dcgm

import (
	"path/filepath"
	"strings"
)

// soname is DCGM 4's. Other major versions have other layouts.
const soname = "libdcgm.so.4"

// candidates are where the library is looked for, in order.
func (o Options) candidates() []string {
	if o.Library != "" {
		return []string{o.Library}
	}
	names := []string{soname}
	for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/dcgm/lib64", "usr/local/dcgm/lib"} {
		names = append(names, filepath.Join("/", o.Root, dir, soname))
	}
	return names
}

// engineName is how messages call the engine.
func (o Options) engineName() string {
	if o.Engine == "" {
		return "embedded"
	}
	return o.Engine
}

// shortVersion is the number in what DCGM tells of itself.
func shortVersion(info string) string {
	for pair := range strings.SplitSeq(info, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return value
		}
	}
	return "unknown"
}
