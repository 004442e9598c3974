//go:build linux && cgo

package main_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// defaultRows lists the rows of dcgm-exporter's default-counters.csv (4.5.3-4.8.2) that a DGX H100
// without XIDs has, with their types on dcgm-exporter's page. The licence is 0 if it does not apply
// to the GPU.
var defaultRows = map[string]string{
	"DCGM_FI_DEV_SM_CLOCK": "gauge", "DCGM_FI_DEV_MEM_CLOCK": "gauge", "DCGM_FI_DEV_MEMORY_TEMP": "gauge", "DCGM_FI_DEV_GPU_TEMP": "gauge",
	"DCGM_FI_DEV_POWER_USAGE": "gauge", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "counter",
	"DCGM_FI_DEV_GPU_UTIL": "gauge", "DCGM_FI_DEV_MEM_COPY_UTIL": "gauge", "DCGM_FI_DEV_ENC_UTIL": "gauge", "DCGM_FI_DEV_DEC_UTIL": "gauge",
	"DCGM_FI_DEV_FB_FREE": "gauge", "DCGM_FI_DEV_FB_USED": "gauge", "DCGM_FI_DEV_FB_RESERVED": "gauge",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "counter", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "counter", "DCGM_FI_DEV_ROW_REMAP_FAILURE": "gauge",
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "counter", "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "gauge", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gauge",
	"DCGM_FI_PROF_DRAM_ACTIVE": "gauge", "DCGM_FI_PROF_PCIE_TX_BYTES": "gauge", "DCGM_FI_PROF_PCIE_RX_BYTES": "gauge",
}

// TestE2EParity starts the binary like dcgm-exporter and compares the page with dcgm-exporter's:
// families, types, ordered labels, and values as equal numbers.
func TestE2EParity(t *testing.T) {
	t.Parallel()
	exe := build(t)
	csv := func(name string) string {
		path, err := filepath.Abs(filepath.Join("../../etc", name))
		must(t, err)
		return path
	}
	own, err := os.Hostname()
	must(t, err)
	const driver = `,DCGM_FI_DRIVER_VERSION="580.65.06"`
	pod := []string{"DCGM_EXPORTER_KUBERNETES=true", "NODE_NAME=worker-7"}
	for _, tt := range []struct {
		name     string
		args     []string
		env      []string
		hostname string
		driver   string   // the driver label, if the list has it
		lacks    []string // rows missing in the list
	}{
		{"chart", []string{"-f", chartCounters(t, csv("default-counters.csv"))}, pod, "worker-7", "", []string{"DCGM_FI_DEV_FB_RESERVED"}},
		{
			"operator with nv-hostengine", nil,
			append(pod, "DCGM_EXPORTER_COLLECTORS="+csv("dcp-metrics-included.csv"), "DCGM_REMOTE_HOSTENGINE_INFO=nvidia-dcgm:5555"), "worker-7", driver, nil,
		},
		{"systemd", []string{"-f", csv("default-counters.csv")}, nil, own, driver, nil},
		{"host and port", []string{"-f", csv("default-counters.csv"), "-r", "gpu-4.example:5556"}, nil, "gpu-4.example", driver, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			engine := dcgmtest.New(t, dcgmtest.Config{GPUs: 2})
			p := parityPage(t, exe, engine, tt.env, tt.args)
			delete(p.types, "DCGM_FI_DEV_XID_ERRORS") // 0 here, absent there: docs/compatibility.md
			maps.DeleteFunc(p.values, func(series, v string) bool { return strings.HasPrefix(series, "DCGM_FI_DEV_XID_ERRORS{") && v == "0" })
			want := map[string]string{}
			for name, typ := range defaultRows {
				if !slices.Contains(tt.lacks, name) {
					want[name] = typ
				}
			}
			if diff := cmp.Diff(want, p.types); diff != "" {
				t.Errorf("families and types (-dcgm-exporter +warpgauge):\n%s", diff)
			}
			// An integer, a float, a ratio.
			numbers := map[string]string{"DCGM_FI_DEV_GPU_TEMP": "41", "DCGM_FI_DEV_POWER_USAGE": "350", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.35"}
			for name := range want {
				for gpu := range 2 {
					series := fmt.Sprintf(`%s{gpu="%d",UUID="%s",pci_bus_id="0000%s",device="nvidia%d",modelName="NVIDIA H100 80GB HBM3",hostname="%s"%s}`,
						name, gpu, nvmltest.UUID(gpu), strings.ToUpper(nvmltest.PCI(gpu)), gpu, tt.hostname, tt.driver)
					if v, ok := p.values[series]; !ok || gpu == 0 && numbers[name] != "" && v != numbers[name] {
						t.Errorf("%s is %q, want %q", series, v, numbers[name])
					}
					delete(p.values, series)
				}
			}
			for series := range p.values {
				t.Errorf("series that dcgm-exporter has not: %s", series)
			}
		})
	}
}

// chartCounters returns the Helm chart's list: the file without two rows.
func chartCounters(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	lines := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(l string) bool {
		return strings.HasPrefix(l, "DCGM_FI_DEV_FB_RESERVED") || strings.HasPrefix(l, "DCGM_FI_DRIVER_VERSION")
	})
	return file(t, "default-counters.csv", strings.Join(lines, ""))
}

// rawPage holds the lines of a page that dcgm-exporter also has.
type rawPage struct{ types, values map[string]string }

// parityPage starts the binary with dcgm-exporter's flags only. The loader finds libdcgm; the
// environment has the address.
func parityPage(t *testing.T, exe string, engine *dcgmtest.Engine, env, args []string) (p rawPage) {
	t.Helper()
	// Enable the collector by name, because this machine may lack an NVIDIA GPU.
	start := append([]string{"LD_LIBRARY_PATH=" + filepath.Dir(engine.Library()), "DCGM_EXPORTER_LISTEN=127.0.0.1:0", "WARPGAUGE_ENABLE_DCGM=true"}, env...)
	e := serving(t, slices.Concat([]string{"env"}, start, []string{exe}, args)...)
	client := newClient(t)
	eventually.OK(t, "all families", func() error {
		p = rawPage{map[string]string{}, map[string]string{}}
		for line := range strings.Lines(string(get(t, client, e.url+"/metrics", "Accept", acceptText).body)) {
			words := strings.Fields(line)
			switch {
			case len(words) == 4 && words[1] == "TYPE" && isDCGM(words[2]):
				p.types[words[2]] = words[3]
			case isDCGM(line):
				at := strings.LastIndexByte(line, ' ')
				p.values[line[:at]] = strings.TrimSpace(line[at+1:])
			}
		}
		if len(p.types) < len(defaultRows)-1 {
			return fmt.Errorf("%d families", len(p.types))
		}
		return nil
	})
	return p
}
