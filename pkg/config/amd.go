package config

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

	"warpgauge/pkg/field"
)

// AMD is a configuration file of AMD's exporter (--amd-config). Names are read again at each
// reload, the log's level too; the rest counts at start. Keys are as AMD's exporter has them
// (pkg/exporter/proto/exporterconfig.proto of https://github.com/ROCm/device-metrics-exporter),
// in any case; those that it does not know it ignores.
type AMD struct {
	Names    AMDNames // not yet checked
	Level    string    // of the log; "": not said
	Unused   []string  // keys without a meaning here, each with the reason
	Problems []string  // what is left out because it is wrong

	name     string
	port     int               // 0: not said
	noHealth bool              // the health service is off
	flags    map[string]string // values of flags that count at start, by name
}

// AMDNames are names and labels as the file has them.
type AMDNames struct {
	Prefix            string
	Fields, Labels    []string
	Custom, PodLabels []field.NameValue
}

// amdKey is what is done with a key of the file. One with neither take nor none has keys inside.
type amdKey struct {
	name string // behind those around it, with dots
	want string // what to write
	take func(a *AMD, data []byte) error
	none string // why it has no meaning here
}

const (
	noNetwork  = "network cards are not read"
	noProfiler = "the profiler is not read"
	noLogFile  = "the log goes to standard error"
)

// amdKeys are all keys that AMD's exporter or its documentation has.
var amdKeys = []amdKey{
	{name: "ServerPort", want: "a port", take: taken(func(a *AMD, port uint16) { a.port = int(port) })},
	{name: "CommonConfig"},
	{name: "CommonConfig.MetricsFieldPrefix", want: "a text", take: taken(func(a *AMD, prefix string) { a.Names.Prefix = prefix })},
	{name: "CommonConfig.HealthService"},
	{name: "CommonConfig.HealthService.Enable", want: "true or false", take: taken(func(a *AMD, on bool) { a.noHealth = !on })},
	{name: "CommonConfig.HealthService.PollingRate", none: "health is judged every second"},
	{name: "CommonConfig.Logging"},
	{name: "CommonConfig.Logging.Level", want: "a text", take: taken((*AMD).level)},
	{name: "CommonConfig.Logging.MaxFileSizeMB", none: noLogFile},
	{name: "CommonConfig.Logging.MaxSizeMB", none: noLogFile},
	{name: "CommonConfig.Logging.MaxBackups", none: noLogFile},
	{name: "CommonConfig.Logging.MaxAgeDays", none: noLogFile},
	{name: "CommonConfig.Logging.LogRotationDisable", none: noLogFile},
	{name: "CommonConfig.Debug"},
	{name: "CommonConfig.Debug.EnableAPI", want: "true or false", take: taken(func(a *AMD, on bool) {
		if on {
			a.flags["enable-pprof"] = "true"
		}
	})},
	{name: "CommonConfig.ProfilerConfig", none: noProfiler},
	{name: "GPUConfig"},
	{name: "GPUConfig.Selector", want: "a text", take: taken((*AMD).selector)},
	{name: "GPUConfig.Fields", want: "a list of names", take: taken(func(a *AMD, names []string) { a.Names.Fields = names })},
	{name: "GPUConfig.Labels", want: "a list of names", take: taken(func(a *AMD, names []string) { a.Names.Labels = names })},
	{name: "GPUConfig.CustomLabels", want: "names with texts", take: taken(func(a *AMD, labels map[string]string) { a.Names.Custom = sortedPairs(labels) })},
	{name: "GPUConfig.ExtraPodLabels", want: "names with texts", take: taken(func(a *AMD, labels map[string]string) { a.Names.PodLabels = sortedPairs(labels) })},
	{name: "GPUConfig.HealthThresholds", want: "names with numbers, and GPU_CPER_MAX_AGE with a duration", take: taken((*AMD).thresholds)},
	{name: "GPUConfig.ProfilerMetrics", none: noProfiler},
	{name: "GPUConfig.ProfilerConfig", none: noProfiler},
	{name: "NICConfig", none: noNetwork},
	{name: "IFOEConfig", none: noNetwork},
}

// taken makes a take of what stores a value of a type.
func taken[T any](store func(*AMD, T)) func(*AMD, []byte) error {
	return func(a *AMD, data []byte) error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		store(a, v)
		return nil
	}
}

// parseAMD reads a configuration file of AMD's exporter. Its error names the file, where it is
// wrong, and what to write.
func parseAMD(data []byte, name string) (*AMD, error) {
	a := &AMD{name: name, flags: map[string]string{}}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		where := ""
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			before := data[:min(int(syntax.Offset), len(data))]
			where = fmt.Sprintf("line %d, character %d: ", bytes.Count(before, []byte{'\n'})+1, len(before)-bytes.LastIndexByte(before, '\n')-1)
		}
		return nil, fmt.Errorf("configuration file %q: %sit is no JSON: %w", name, where, err)
	}
	if err := a.object("", whole); err != nil {
		return nil, fmt.Errorf("configuration file %q: %w", name, err)
	}
	return a, nil
}

// object reads the keys of an object; prefix ends in a dot.
func (a *AMD) object(prefix string, data []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return fmt.Errorf("%s: write keys and values in braces", cmp.Or(strings.TrimSuffix(prefix, "."), "the file"))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		name, value := prefix+key, keys[key]
		i := slices.IndexFunc(amdKeys, func(k amdKey) bool { return strings.EqualFold(k.name, name) })
		switch {
		case i < 0:
			a.unknown(name)
		case string(value) == "null":
		case amdKeys[i].none != "":
			a.Unused = append(a.Unused, amdKeys[i].name+": "+amdKeys[i].none)
		case amdKeys[i].take == nil:
			if err := a.object(amdKeys[i].name+".", value); err != nil {
				return err
			}
		case amdKeys[i].take(a, value) != nil:
			return fmt.Errorf("%s: write %s", amdKeys[i].name, amdKeys[i].want)
		}
	}
	return nil
}

func (a *AMD) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

func (a *AMD) unknown(name string) {
	var known []string
	for _, k := range amdKeys {
		known = append(known, k.name)
	}
	if near, ok := field.Nearest(name, known); ok {
		a.problem("key %q is unknown and has no effect; did you mean %s?", name, near)
		return
	}
	a.problem("key %q is unknown and has no effect", name)
}

func (a *AMD) level(text string) {
	text = strings.ToLower(text)
	if text == "fatal" {
		text = "error"
	}
	if !slices.Contains([]string{"", "debug", "info", "warn", "error"}, text) {
		a.problem("CommonConfig.Logging.Level is %q: write debug, info, warn or error", text)
		return
	}
	a.Level = text
}

func (a *AMD) selector(text string) {
	if text == "" {
		return
	}
	if _, err := ParseSelector("g:" + text); err != nil {
		a.problem("GPUConfig.Selector is %q, so all GPUs are reported: write a list such as 0,2-3", text)
		return
	}
	a.flags["devices"] = "g:" + text
}

// sortedPairs are the entries of an object, by name.
func sortedPairs(of map[string]string) (out []field.NameValue) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, field.NameValue{Name: name, Value: of[name]})
	}
	return out
}

var amdBlocks = strings.Fields("SDMA GFX MMHUB ATHUB BIF HDP XGMI_WAFL DF SMN SEM MP0 MP1 FUSE UMC MCA VCN JPEG IH MPIO")

const eccThreshold = "GPU_ECC_UNCORRECT_"

// thresholds become those of the rules ras_uncorrected and cper_fatal. AMD's are the most errors that a block
// may have; those of a rule the fewest that are too many.
func (a *AMD) thresholds(all map[string]json.RawMessage) {
	rules := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		block, ok := strings.CutPrefix(strings.ToUpper(name), eccThreshold)
		most, err := strconv.ParseUint(string(all[name]), 10, 32)
		switch {
		case strings.EqualFold(name, "GPU_CPER_MAX_AGE"):
			age, err := cperAge(all[name])
			switch {
			case err != nil:
				a.problem("GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h")
			case age > 0:
				rules = append(rules, "cper_fatal="+strconv.FormatFloat(age.Seconds(), 'f', -1, 64))
			}
		case !ok || block == "TOTAL" || !slices.Contains(amdBlocks, block):
			a.problem("key %q is unknown and has no effect", "GPUConfig.HealthThresholds."+name)
		case err != nil:
			a.problem("GPUConfig.HealthThresholds.%s: write a whole number that is not negative", name)
		case most > 0:
			rules = append(rules, fmt.Sprintf("ras_uncorrected.%s=%d", amdBlock(strings.ToLower(block)), most+1))
		}
	}
	if len(rules) > 0 {
		a.flags["health-rules"] = strings.Join(rules, ",")
	}
}

// cperAge is an age of the firmware's records; 0: it was not said.
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

// amdBlock is what the kernel calls a block of a GPU.
func amdBlock(name string) string {
	if name == "bif" {
		return "pcie_bif"
	}
	return name
}

// Restart lists what differs from another file and counts at start only.
func (a *AMD) Restart(from *AMD) (out []string) {
	if from == nil {
		from = &AMD{}
	}
	if a.port != from.port {
		out = append(out, "ServerPort")
	}
	if a.noHealth != from.noHealth {
		out = append(out, "CommonConfig.HealthService.Enable")
	}
	for _, f := range []struct{ flag, key string }{
		{"enable-pprof", "CommonConfig.Debug.EnableAPI"},
		{"devices", "GPUConfig.Selector"},
		{"health-rules", "GPUConfig.HealthThresholds"},
	} {
		if a.flags[f.flag] != from.flags[f.flag] {
			out = append(out, f.key)
		}
	}
	if !slices.Equal(a.Names.PodLabels, from.Names.PodLabels) {
		out = append(out, "GPUConfig.ExtraPodLabels")
	}
	return out
}
