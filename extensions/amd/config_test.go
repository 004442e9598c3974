package amd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// TestParseFile has a row for each key of exporterconfig.proto.
func TestParseFile(t *testing.T) {
	blank := configFile{flags: map[string]string{}}
	for text, want := range map[string]configFile{
		`{}`:                   {},
		`{"ServerPort": 5001}`: {port: 5001},
		`{"serverport": 5001}`: {port: 5001}, // Go matches keys in any case
		`{"ServerPort": null}`: {},
		`{"CommonConfig": {"MetricsFieldPrefix": "amd_"}}`:                                              {names: Settings{Prefix: "amd_"}},
		`{"CommonConfig": {"HealthService": {"Enable": false}}}`:                                        {noHealth: true},
		`{"CommonConfig": {"HealthService": {"Enable": true}}}`:                                         {},
		`{"CommonConfig": {"HealthService": {"PollingRate": "1h"}}}`:                                    {unused: []string{"CommonConfig.HealthService.PollingRate: health is judged every second"}},
		`{"CommonConfig": {"Logging": {"Level": "WARN"}}}`:                                              {level: "warn"},
		`{"CommonConfig": {"Logging": {"Level": "fatal"}}}`:                                             {level: "error"},
		`{"CommonConfig": {"Logging": {"Level": "loud"}}}`:                                              {problems: []string{`CommonConfig.Logging.Level is "loud": write debug, info, warn or error`}},
		`{"CommonConfig": {"Logging": {"MaxFileSizeMB": 1}}}`:                                           {unused: []string{"CommonConfig.Logging.MaxFileSizeMB: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxSizeMB": 1}}}`:                                               {unused: []string{"CommonConfig.Logging.MaxSizeMB: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxBackups": 1}}}`:                                              {unused: []string{"CommonConfig.Logging.MaxBackups: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"MaxAgeDays": 1}}}`:                                              {unused: []string{"CommonConfig.Logging.MaxAgeDays: the log goes to standard error"}},
		`{"CommonConfig": {"Logging": {"LogRotationDisable": true}}}`:                                   {unused: []string{"CommonConfig.Logging.LogRotationDisable: the log goes to standard error"}},
		`{"CommonConfig": {"Debug": {"EnableAPI": true}}}`:                                              {flags: map[string]string{"enable-pprof": "true"}},
		`{"CommonConfig": {"Debug": {"EnableAPI": false}}}`:                                             {},
		`{"CommonConfig": {"ProfilerConfig": {"PtlDelay": 1}}}`:                                         {unused: []string{"CommonConfig.ProfilerConfig: the profiler is not read"}},
		`{"GPUConfig": {"Selector": "0,2-3"}}`:                                                          {flags: map[string]string{"devices": "g:0,2-3"}},
		`{"GPUConfig": {"Selector": "all"}}`:                                                            {problems: []string{`GPUConfig.Selector is "all", so all GPUs are reported: write a list such as 0,2-3`}},
		`{"GPUConfig": {"Selector": ""}}`:                                                               {},
		`{"GPUConfig": {"Fields": ["GPU_CLOCK", "gpu_health"]}}`:                                        {names: Settings{Fields: []string{"GPU_CLOCK", "gpu_health"}}},
		`{"GPUConfig": {"Labels": ["GPU_UUID"]}}`:                                                       {names: Settings{Labels: []string{"GPU_UUID"}}},
		`{"GPUConfig": {"CustomLabels": {"CLUSTER_NAME": "c1", "A": "b"}}}`:                             {names: Settings{Custom: []Pair{{Name: "A", Value: "b"}, {Name: "CLUSTER_NAME", Value: "c1"}}}},
		`{"GPUConfig": {"ExtraPodLabels": {"WORKLOAD_ID": "amd-workload-id"}}}`:                         {names: Settings{PodLabels: []Pair{{Name: "WORKLOAD_ID", Value: "amd-workload-id"}}}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_SDMA": 0}}}`:                            {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_UMC": 5, "GPU_ECC_UNCORRECT_BIF": 1}}}`: {flags: map[string]string{"health-rules": "ras_uncorrected.pcie_bif=2,ras_uncorrected.umc=6"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_UMC": -1}}}`:                            {problems: []string{"GPUConfig.HealthThresholds.GPU_ECC_UNCORRECT_UMC: write a whole number that is not negative"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_ECC_UNCORRECT_A,b": 1}}}`:                             {problems: []string{`key "GPUConfig.HealthThresholds.GPU_ECC_UNCORRECT_A,b" is unknown and has no effect`}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_HEAT": 1}}}`:                                          {problems: []string{`key "GPUConfig.HealthThresholds.GPU_HEAT" is unknown and has no effect`}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": ""}}}`:                                 {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "1h30m"}}}`:                            {flags: map[string]string{"health-rules": "cper_fatal=5400"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "0"}}}`:                                {},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": "-1h"}}}`:                              {problems: []string{"GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h"}},
		`{"GPUConfig": {"HealthThresholds": {"GPU_CPER_MAX_AGE": 1}}}`:                                  {problems: []string{"GPUConfig.HealthThresholds.GPU_CPER_MAX_AGE: write a duration such as 1h"}},
		`{"GPUConfig": {"ProfilerMetrics": {"all": true}}}`:                                             {unused: []string{"GPUConfig.ProfilerMetrics: the profiler is not read"}},
		`{"GPUConfig": {"ProfilerConfig": {"SamplingInterval": 1}}}`:                                    {unused: []string{"GPUConfig.ProfilerConfig: the profiler is not read"}},
		`{"NICConfig": {"Fields": ["NIC_TOTAL"]}}`:                                                      {unused: []string{"NICConfig: network cards are not read"}},
		`{"IFOEConfig": {"Fields": ["IFOE_TOTAL_PORTS"]}}`:                                              {unused: []string{"IFOEConfig: network cards are not read"}},
		`{"GPUConfig": {"Field": []}}`:                                                                  {problems: []string{`key "GPUConfig.Field" is unknown and has no effect; did you mean GPUConfig.Fields?`}},
	} {
		got, err := parseFile([]byte(text), "config.json")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want.flags == nil {
			want.flags = blank.flags
		}
		want.name = "config.json"
		testkit.Equal(t, text, &want, got, cmp.AllowUnexported(configFile{}))
	}
	for text, want := range map[string]string{
		"":                                    `configuration file "config.json": line 1, character 0: it is not JSON: unexpected end of JSON input`,
		"{\n  \"GPUConfig\": {,}\n}":          `configuration file "config.json": line 2, character 17: it is not JSON: invalid character ',' looking for beginning of object key string`,
		`[]`:                                  `configuration file "config.json": the file: write keys and values in braces`,
		`{"ServerPort": "5000"}`:              `configuration file "config.json": ServerPort: write a port`,
		`{"ServerPort": 70000}`:               `configuration file "config.json": ServerPort: write a port`,
		`{"GPUConfig": []}`:                   `configuration file "config.json": GPUConfig: write keys and values in braces`,
		`{"GPUConfig": {"Fields": "GPU"}}`:    `configuration file "config.json": GPUConfig.Fields: write a list of names`,
		`{"GPUConfig": {"CustomLabels": []}}`: `configuration file "config.json": GPUConfig.CustomLabels: write names with texts`,
	} {
		_, err := parseFile([]byte(text), "config.json")
		testkit.Equal(t, "error for "+text, want, fmt.Sprint(err))
	}
}

// FuzzParseFile: each part of a file is used or reported, and messages have one line.
func FuzzParseFile(f *testing.F) {
	for _, s := range []string{`{}`, `{"ServerPort":1}`, `{"GPUConfig":{"Fields":["A"],"HealthThresholds":{"GPU_ECC_UNCORRECT_UMC":1}}}`, `{"CommonConfig":{"Logging":{"Level":"x"}}}`, `[`, `{"a":{"b":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseFile(data, "config.json")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: message %q", data, err)
			}
			return
		}
		set := config.NewSet(environment{}.Lookup)
		for name, text := range a.flags {
			must(t, set.SetDefault(name, text, config.FromFile))
		}
		_, why := NewNames(a.names, nil)
		for _, s := range slices.Concat(a.problems, a.unused, why) {
			if s == "" || strings.ContainsAny(s, "\r\n") {
				t.Fatalf("%q: message %q", data, s)
			}
		}
		if a.restart(a) != nil {
			t.Fatalf("%q differs from itself", data)
		}
	})
}
