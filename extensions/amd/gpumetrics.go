package amd

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// gpuMetrics serves /gpumetrics for amdgpuhealth, AMD's plugin for node-problem-detector (tools/amd-gpu-health of
// https://github.com/ROCm/device-metrics-exporter). The answer has only the values that amdgpuhealth reads, of GPUs with
// recent values. Without any GPU amdgpuhealth reports an unknown state, but it reads a missing value as 0. Answers are
// cached for 200 ms, so that frequent clients do not slow down scrapes.
func gpuMetrics(current func() *view.View, staleAfter time.Duration) http.HandlerFunc {
	var mu sync.Mutex
	var body []byte
	var made time.Time
	answer := func() []byte {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(made) > 200*time.Millisecond {
			body, _ = json.Marshal(map[string]any{"Response": trees(current(), staleAfter)}) // numbers only; cannot fail
			made = time.Now()
		}
		return body
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer()) // the client may have gone away
	}
}

// trees returns the GPUs of a view as JSON objects.
func trees(v *view.View, staleAfter time.Duration) []map[string]any {
	var row ring.Row
	gpus := map[string]values{}
	var order []string
	for _, s := range v.Sources {
		if !s.Latest(&row) {
			continue
		}
		for i := range s.Columns {
			c := &s.Columns[i]
			if c.Device < 0 || c.Device >= len(s.Devices) {
				continue
			}
			d := &s.Devices[c.Device]
			if !hasNames(s, d) || c.Buffer > 0 || time.Since(time.Unix(0, row.Stamps[c.Device])) > staleAfter {
				continue
			}
			if gpus[d.ID] == nil {
				gpus[d.ID] = values{}
				order = append(order, d.ID)
			}
			gpus[d.ID].add(c, row.Cells[i])
		}
	}
	out := []map[string]any{}
	for _, id := range order {
		out = append(out, gpus[id].tree())
	}
	return out
}

// noRASErrors closes the connection, because amdgpuhealth takes any answer without error records, even a 404,
// for "no errors".
func noRASErrors(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// values holds the values of a GPU or partition by path and index. In a path, [] follows the name of a list.
type values map[string]map[int]uint64

// add sets a value under each AMD name for its column.
func (a values) add(c *collector.Column, v float64) {
	for _, to := range paths()[c.Field] {
		more, ok := to.source.own(c.Labels)
		v := math.Round(field.NewScale(to.source.Scale).Of(v))
		if !ok || !(v >= 0 && v < 1<<53) {
			continue
		}
		at := 0
		for _, l := range more {
			if strings.HasSuffix(l.Name, "_index") {
				at, _ = strconv.Atoi(l.Value) // the label is a number
			}
		}
		if a[to.path] == nil {
			a[to.path] = map[int]uint64{}
		}
		a[to.path][at] = uint64(v)
	}
}

// tree returns the values as JSON objects.
func (a values) tree() map[string]any {
	root := map[string]any{"Status": map[string]any{}, "Stats": map[string]any{}}
	for path, values := range a {
		of, parts := root, strings.Split(path, ".")
		for len(parts) > 1 && !strings.HasSuffix(parts[0], "[]") {
			if of[parts[0]] == nil {
				of[parts[0]] = map[string]any{}
			}
			of, parts = of[parts[0]].(map[string]any), parts[1:]
		}
		name, list := strings.CutSuffix(parts[0], "[]")
		var all []uint64
		for _, at := range slices.Sorted(maps.Keys(values)) {
			all = append(all, values[at])
		}
		switch {
		case !list:
			of[name] = all[0]
		case len(parts) == 1:
			of[name] = all
		default:
			objects, _ := of[name].([]map[string]any)
			for i, v := range all {
				if i == len(objects) {
					objects = append(objects, map[string]any{})
				}
				objects[i][parts[1]] = v
			}
			of[name] = objects
		}
	}
	return root
}

type metricPath struct {
	source *Source
	path   string
}

// paths returns the JSON paths of amdgpuhealth by reading (FetchMetricFromGPU of its cli/utils/utils.go).
var paths = sync.OnceValue(func() map[field.ID][]metricPath {
	paths := map[string]string{
		"GPU_PACKAGE_POWER": "Stats.PackagePower", "GPU_AVERAGE_PACKAGE_POWER": "Stats.AvgPackagePower", "GPU_POWER_USAGE": "Stats.PowerUsage",
		"GPU_ENERGY_CONSUMED": "Stats.EnergyConsumed", "GPU_EDGE_TEMPERATURE": "Stats.Temperature.EdgeTemperature",
		"GPU_JUNCTION_TEMPERATURE": "Stats.Temperature.JunctionTemperature", "GPU_MEMORY_TEMPERATURE": "Stats.Temperature.MemoryTemperature",
		"GPU_HBM_TEMPERATURE": "Stats.Temperature.HBMTemperature[]", "GPU_GFX_ACTIVITY": "Stats.Usage.GFXActivity", "GPU_UMC_ACTIVITY": "Stats.Usage.UMCActivity",
		"GPU_MMA_ACTIVITY": "Stats.Usage.MMActivity", "GPU_VCN_ACTIVITY": "Stats.Usage.VCNActivity[]", "GPU_JPEG_ACTIVITY": "Stats.Usage.JPEGActivity[]",
		"GPU_VOLTAGE": "Stats.Voltage.Voltage", "GPU_GFX_VOLTAGE": "Stats.Voltage.GFXVoltage", "GPU_MEMORY_VOLTAGE": "Stats.Voltage.MemoryVoltage",
		"PCIE_SPEED": "Status.PCIeStatus.Speed", "PCIE_MAX_SPEED": "Status.PCIeStatus.MaxSpeed", "PCIE_BANDWIDTH": "Status.PCIeStatus.Bandwidth",
		"PCIE_REPLAY_COUNT": "Stats.PCIeStats.ReplayCount", "PCIE_RECOVERY_COUNT": "Stats.PCIeStats.RecoveryCount",
		"PCIE_REPLAY_ROLLOVER_COUNT": "Stats.PCIeStats.ReplayRolloverCount", "PCIE_NACK_SENT_COUNT": "Stats.PCIeStats.NACKSentCount",
		"PCIE_NACK_RECEIVED_COUNT": "Stats.PCIeStats.NACKReceivedCount", "GPU_CLOCK": "Status.ClockStatus[].Frequency", "GPU_TOTAL_VRAM": "Status.VRAMStatus.Size",
		"GPU_USED_VRAM": "Stats.VRAMUsage.UsedVRAM", "GPU_TOTAL_VISIBLE_VRAM": "Stats.VRAMUsage.TotalVisibleVRAM", "GPU_USED_VISIBLE_VRAM": "Stats.VRAMUsage.UsedVisibleVRAM",
		"GPU_FREE_VISIBLE_VRAM": "Stats.VRAMUsage.FreeVisibleVRAM", "GPU_TOTAL_GTT": "Stats.VRAMUsage.TotalGTT", "GPU_USED_GTT": "Stats.VRAMUsage.UsedGTT",
		"GPU_FREE_GTT": "Stats.VRAMUsage.FreeGTT", "GPU_XGMI_LINK_RX": "Stats.XGMILinkStats[].DataRead", "GPU_XGMI_LINK_TX": "Stats.XGMILinkStats[].DataWrite",
		"GPU_VIOLATION_CURRENT_ACCUMULATED_COUNTER":          "Stats.ViolationStats.CurrentAccumulatedCounter",
		"GPU_VIOLATION_PROCESSOR_HOT_RESIDENCY_ACCUMULATED":  "Stats.ViolationStats.ProcessorHotResidencyAccumulated",
		"GPU_VIOLATION_PPT_RESIDENCY_ACCUMULATED":            "Stats.ViolationStats.PPTResidencyAccumulated",
		"GPU_VIOLATION_SOCKET_THERMAL_RESIDENCY_ACCUMULATED": "Stats.ViolationStats.SocketThermalResidencyAccumulated",
		"GPU_VIOLATION_VR_THERMAL_RESIDENCY_ACCUMULATED":     "Stats.ViolationStats.VRThermalResidencyAccumulated",
		"GPU_VIOLATION_HBM_THERMAL_RESIDENCY_ACCUMULATED":    "Stats.ViolationStats.HBMThermalResidencyAccumulated",
	}
	out := map[field.ID][]metricPath{}
	for i := range Metrics() {
		n := &Metrics()[i]
		path := paths[n.Field]
		for kind, end := range map[string]string{"GPU_ECC_CORRECT_": "CorrectableErrors", "GPU_ECC_UNCORRECT_": "UncorrectableErrors"} {
			if block, ok := strings.CutPrefix(n.Field, kind); ok {
				path = "Stats." + strings.ReplaceAll(block, "_", "") + end
				if block == "TOTAL" {
					path = "Stats.Total" + end
				}
			}
		}
		for j := range n.Sources {
			if s := &n.Sources[j]; path != "" {
				out[s.ID] = append(out[s.ID], metricPath{s, path})
			}
		}
	}
	return out
})
