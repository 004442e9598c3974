package amd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// configFile is a configuration file of AMD's exporter (--amd-config). Each reload applies its names and log level; the
// other keys apply at start only. The key names come from AMD's exporter (pkg/exporter/proto/exporterconfig.proto of
// https://github.com/ROCm/device-metrics-exporter), in upper or lower case. An unknown key is a warning, because AMD's
// exporter ignores it.
type configFile struct {
	names    Settings // not yet checked
	level    string   // log level, or ""
	unused   []string // ignored keys, each with the reason
	problems []string // invalid parts, which are ignored

	name     string
	port     int               // 0 if absent
	noHealth bool              // the health service is switched off
	flags    map[string]string // flags that apply at start only, by name
}

// fileKey describes a key of the file. A key without read and none contains other keys.
type fileKey struct {
	name string // full path, with dots
	want string // valid values, for errors
	read func(f *configFile, data []byte) error
	none string // why the key is ignored
}

// fileKeys lists all keys of AMD's exporter and its documentation.
var fileKeys = []fileKey{
	{name: "ServerPort", want: "a port", read: into(func(f *configFile, port uint16) { f.port = int(port) })},
	{name: "CommonConfig"},
	{name: "CommonConfig.MetricsFieldPrefix", want: "a text", read: into(func(f *configFile, prefix string) { f.names.Prefix = prefix })},
	{name: "CommonConfig.HealthService"},
	{name: "CommonConfig.HealthService.Enable", want: "true or false", read: into(func(f *configFile, on bool) { f.noHealth = !on })},
	{name: "CommonConfig.HealthService.PollingRate", none: "health is judged every second"},
	{name: "CommonConfig.Logging"},
	{name: "CommonConfig.Logging.Level", want: "a text", read: into((*configFile).readLevel)},
	{name: "CommonConfig.Logging.MaxFileSizeMB", none: logToStderr},
	{name: "CommonConfig.Logging.MaxSizeMB", none: logToStderr},
	{name: "CommonConfig.Logging.MaxBackups", none: logToStderr},
	{name: "CommonConfig.Logging.MaxAgeDays", none: logToStderr},
	{name: "CommonConfig.Logging.LogRotationDisable", none: logToStderr},
	{name: "CommonConfig.Debug"},
	{name: "CommonConfig.Debug.EnableAPI", want: "true or false", read: into(func(f *configFile, on bool) {
		if on {
			f.flags["enable-pprof"] = "true"
		}
	})},
	{name: "CommonConfig.ProfilerConfig", none: profilerUnread},
	{name: "GPUConfig"},
	{name: "GPUConfig.Selector", want: "a text", read: into((*configFile).selector)},
	{name: "GPUConfig.Fields", want: "a list of names", read: into(func(f *configFile, names []string) { f.names.Fields = names })},
	{name: "GPUConfig.Labels", want: "a list of names", read: into(func(f *configFile, names []string) { f.names.Labels = names })},
	{name: "GPUConfig.CustomLabels", want: "names with texts", read: into(func(f *configFile, labels map[string]string) { f.names.Custom = sortedPairs(labels) })},
	{name: "GPUConfig.ExtraPodLabels", want: "names with texts", read: into(func(f *configFile, labels map[string]string) { f.names.PodLabels = sortedPairs(labels) })},
	{name: "GPUConfig.HealthThresholds", want: "names with numbers, and GPU_CPER_MAX_AGE with a duration", read: into((*configFile).thresholds)},
	{name: "GPUConfig.ProfilerMetrics", none: profilerUnread},
	{name: "GPUConfig.ProfilerConfig", none: profilerUnread},
	{name: "NICConfig", none: networkUnread},
	{name: "IFOEConfig", none: networkUnread},
}

// into returns a read function that decodes a value and passes it to store.
func into[T any](store func(*configFile, T)) func(*configFile, []byte) error {
	return func(f *configFile, data []byte) error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		store(f, v)
		return nil
	}
}

// parseFile parses a configuration file of AMD's exporter. Its errors name the file and the place,
// and say how to correct it.
func parseFile(data []byte, name string) (*configFile, error) {
	f := &configFile{name: name, flags: map[string]string{}}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		where := ""
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			before := data[:min(int(syntax.Offset), len(data))]
			where = fmt.Sprintf("line %d, character %d: ", bytes.Count(before, []byte{'\n'})+1, len(before)-bytes.LastIndexByte(before, '\n')-1)
		}
		return nil, fmt.Errorf("configuration file %q: %sit is not JSON: %w", name, where, err)
	}
	if err := f.object("", whole); err != nil {
		return nil, fmt.Errorf("configuration file %q: %w", name, err)
	}
	return f, nil
}

// object decodes the keys of an object; prefix ends in a dot.
func (f *configFile) object(prefix string, data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return fmt.Errorf("%s: write keys and values in braces", cmp.Or(strings.TrimSuffix(prefix, "."), "the file"))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name, value := prefix+key, keys[key]
		i := slices.IndexFunc(fileKeys, func(k fileKey) bool { return strings.EqualFold(k.name, name) })
		switch {
		case i < 0:
			f.unknown(name)
		case string(value) == "null":
		case fileKeys[i].none != "":
			f.unused = append(f.unused, fileKeys[i].name+": "+fileKeys[i].none)
		case fileKeys[i].read == nil:
			if err := f.object(fileKeys[i].name+".", value); err != nil {
				return err
			}
		case fileKeys[i].read(f, value) != nil:
			return fmt.Errorf("%s: write %s", fileKeys[i].name, fileKeys[i].want)
		}
	}
	return nil
}

func (f *configFile) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

func (f *configFile) unknown(name string) {
	var known []string
	for _, k := range fileKeys {
		known = append(known, k.name)
	}
	if near, ok := field.Nearest(name, known); ok {
		f.problem("key %q is unknown and has no effect; did you mean %s?", name, near)
		return
	}
	f.problem("key %q is unknown and has no effect", name)
}

func (f *configFile) readLevel(text string) {
	text = strings.ToLower(text)
	if text == "fatal" {
		text = "error"
	}
	if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, text) {
		f.problem("CommonConfig.Logging.Level is %q: write debug, info, warn or error", text)
		return
	}
	f.level = text
}

func (f *configFile) selector(text string) {
	if text == "" {
		return
	}
	if _, err := config.ParseSelector("g:" + text); err != nil {
		f.problem("GPUConfig.Selector is %q, so all GPUs are reported: write a list such as 0,2-3", text)
		return
	}
	f.flags["devices"] = "g:" + text
}

// sortedPairs returns the entries of an object, by name.
func sortedPairs(of map[string]string) (out []Pair) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, Pair{Name: name, Value: of[name]})
	}
	return out
}

const eccThreshold = "GPU_ECC_UNCORRECT_"

// thresholds sets the thresholds of the rules ras_uncorrected and cper_fatal. AMD's threshold is the largest tolerated
// number of errors of a block; a rule's threshold is the smallest number that is too many.
func (f *configFile) thresholds(all map[string]json.RawMessage) {
	rules := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		block, ok := strings.CutPrefix(strings.ToUpper(name), eccThreshold)
		most, err := strconv.ParseUint(string(all[name]), 10, 32)
		switch {
		case strings.EqualFold(name, "GPU_CPER_MAX_AGE"):
			age, err := cperAge(all[name])
			switch {
			case err != nil:
				f.problem("GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h")
			case age > 0:
				rules = append(rules, "cper_fatal="+strconv.FormatFloat(age.Seconds(), 'f', -1, 64))
			}
		case !ok || block == "TOTAL" || !slices.ContainsFunc(Metrics(), func(m Metric) bool { return strings.EqualFold(m.Field, name) }):
			f.problem("key %q is unknown and has no effect", "GPUConfig.HealthThresholds."+name)
		case err != nil:
			f.problem("GPUConfig.HealthThresholds.%s: write a whole number that is not negative", name)
		case most > 0:
			block = cmp.Or(map[string]string{"BIF": "pcie_bif"}[block], strings.ToLower(block)) // the kernel's name
			rules = append(rules, fmt.Sprintf("ras_uncorrected.%s=%d", block, most+1))
		}
	}
	if len(rules) > 0 {
		f.flags["health-rules"] = strings.Join(rules, ",")
	}
}

// cperAge decodes the maximum age of firmware records; 0 if absent.
func cperAge(data []byte) (time.Duration, error) {
	var text string
	if err := json.Unmarshal(data, &text); err != nil || text == "" {
		return 0, err
	}
	age, err := time.ParseDuration(text)
	if err == nil && age < 0 {
		err = strconv.ErrRange
	}
	return age, err
}

// restart lists the differences to another file that need a restart.
func (f *configFile) restart(from *configFile) (out []string) {
	if from == nil {
		from = &configFile{}
	}
	if f.port != from.port {
		out = append(out, "ServerPort")
	}
	if f.noHealth != from.noHealth {
		out = append(out, "CommonConfig.HealthService.Enable")
	}
	for _, p := range []struct{ flag, key string }{
		{"enable-pprof", "CommonConfig.Debug.EnableAPI"},
		{"devices", "GPUConfig.Selector"},
		{"health-rules", "GPUConfig.HealthThresholds"},
	} {
		if f.flags[p.flag] != from.flags[p.flag] {
			out = append(out, p.key)
		}
	}
	if !slices.Equal(f.names.PodLabels, from.names.PodLabels) {
		out = append(out, "GPUConfig.ExtraPodLabels")
	}
	return out
}
