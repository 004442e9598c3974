//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func devices(c *opened) (out []collector.Device) {
	for _, s := range c.sources {
		out = append(out, s.Devices()...)
	}
	return out
}

func find(tb testing.TB, c *opened, id string) collector.Device {
	tb.Helper()
	s, d := c.device(tb, id)
	return c.sources[s].Devices()[d]
}

// TestEntities checks which of the engine's entities become devices for a list, and their names: only links that are up,
// cores with unique numbers on the node, and injected GPUs only with --fake-gpus.
func TestEntities(t *testing.T) {
	const (
		linkState, switchTemp, cpuPower, coreUtil = "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT", "DCGM_FI_DEV_CPU_UTIL_TOTAL"
		hot, licence, memory, driver              = "DCGM_FI_DEV_CONNECTX_TEMP_CELSIUS", "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "DCGM_FI_DEV_VGPU_MEMORY_USAGE", "label DCGM_FI_DRIVER_VERSION"
	)
	facts := []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}}
	label := func(pairs ...string) (out []collector.Label) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, collector.Label{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, tt := range []struct {
		preset  string
		prepare func(e *dcgmtest.Engine, o *Options)
		names   []string
		levels  map[field.Level]int
		devices []collector.Device
		values  map[string]float64 // by device and field
	}{
		{"dgx-h100", func(e *dcgmtest.Engine, _ *Options) { e.SetLink(dcgmtest.GPU(1), 4, dcgmtest.LinkDown) }, []string{temperature, linkState, switchTemp, driver},
			map[field.Level]int{field.GPU: 8, field.Link: 8*18 - 1 + 4*32, field.Switch: 4}, []collector.Device{
				{ID: "nvswitch2", Level: field.Switch, Labels: label("nvswitch", "nvswitch2"), Facts: facts},
				{ID: "nvswitch2/link31", Parent: "nvswitch2", Level: field.Link, Labels: label("nvlink", "31", "nvswitch", "nvswitch2"), Facts: facts},
			}, nil},
		{"gb200", nil, []string{temperature, cpuPower}, map[field.Level]int{field.GPU: 4, field.CPU: 2}, []collector.Device{{ID: "CPU-1", Level: field.CPU, Labels: label("cpu", "1")}}, nil},
		{"gb200", nil, []string{temperature, cpuPower, coreUtil}, map[field.Level]int{field.GPU: 4, field.CPU: 2, field.Core: 144}, []collector.Device{
			{ID: "CPU-1/core143", Parent: "CPU-1", Level: field.Core, Labels: label("cpucore", "143", "cpu", "1")},
			{ID: "CPU-0/core71", Parent: "CPU-0", Level: field.Core, Labels: label("cpucore", "71", "cpu", "0")},
		}, nil},
		{"pcie", func(e *dcgmtest.Engine, _ *Options) { e.Add(dcgmtest.ConnectX(3), true) }, []string{temperature}, map[field.Level]int{field.GPU: 8}, nil, nil},
		{"pcie", func(e *dcgmtest.Engine, _ *Options) {
			e.Add(dcgmtest.ConnectX(3), true)
			e.Set(dcgmtest.ConnectX(3), 1310, dcgmtest.Number(54.5))
		}, []string{temperature, hot, driver}, map[field.Level]int{field.GPU: 8, field.ConnectX: 1},
			[]collector.Device{{ID: "connectx3", Level: field.ConnectX, Labels: label("connectx", "3"), Facts: facts}}, map[string]float64{"connectx3 " + hot: 54.5}},
		{"pcie", func(e *dcgmtest.Engine, _ *Options) { e.Add(dcgmtest.GPU(8), false) }, []string{temperature}, map[field.Level]int{field.GPU: 8}, nil, nil},
		{"pcie", func(e *dcgmtest.Engine, o *Options) { e.Add(dcgmtest.GPU(8), false); o.FakeGPUs = true }, []string{temperature}, map[field.Level]int{field.GPU: 9}, nil, nil},
		// The engine reports the licence for a GPU, although it is a vGPU field. Other vGPU fields are not requested.
		{"pcie", func(e *dcgmtest.Engine, _ *Options) {
			e.Set(dcgmtest.GPU(0), int(field.VGPULicence), dcgmtest.Number(1))
		}, []string{licence, memory},
			map[field.Level]int{field.GPU: 8}, nil, map[string]float64{nvmltest.UUID(0) + " " + licence: 1, nvmltest.UUID(0) + " " + memory: math.NaN()}},
	} {
		e := dcgmtest.New(t, dcgmtest.Config{Preset: tt.preset})
		o := remote(e)
		if tt.prepare != nil {
			tt.prepare(e, &o)
		}
		c := open1(t, o, tt.names...)
		c.mustSample(t)
		testkit.Equal(t, fmt.Sprintf("%s, %q: devices by level", tt.preset, tt.names), tt.levels, levels(devices(c)))
		for _, want := range tt.devices {
			testkit.Equal(t, want.ID, want, find(t, c, want.ID))
		}
		for of, want := range tt.values {
			id, name, _ := strings.Cut(of, " ")
			got, _ := c.value(t, id, name)
			testkit.ErrorIf(t, !same(got, want), "%s is %v, want %v", of, got, want)
		}
	}
}

// TestOldEngine checks that only links are missing with an engine before 4.3, whose link IDs lack the owner, and that the
// log says so once.
func TestOldEngine(t *testing.T) {
	for version, links := range map[string]bool{"4.2.3": false, "4.3.0": true, "4.4.1": true, "4.5.2": true, "4.6.0": true} {
		e := dcgmtest.New(t, dcgmtest.Config{GPUs: 1, Version: version})
		c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT")
		c.mustSample(t)
		got := levels(devices(c))[field.Link]
		if want := 18 + 4*32; links && got != want || !links && got != 0 {
			t.Errorf("%s: %d links", version, got)
		}
		if n, why := c.logs.FilterMessageSnippet("cannot list entities").Len(), devices(c)[0].Unread; (n != 0 || why != "") && links || (n != 1 || !strings.Contains(why, "reuses link IDs")) && !links {
			t.Errorf("%s: %d lines say that links are skipped; of the GPU is said %q", version, n, why)
		}
	}
}

// TestBlankIdentity checks that DCGM's blank texts do not become labels.
func TestBlankIdentity(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	for which, blank := range []string{"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>"} {
		for _, v := range []dcgmtest.Value{dcgmtest.Blank(which), dcgmtest.Text(blank), dcgmtest.Status(-6)} {
			for _, f := range []int{1, 50, 54, 57} {
				e.Set(dcgmtest.Everything(), f, v)
				e.Set(dcgmtest.GPU(0), f, v)
			}
			e.Set(dcgmtest.GPU(0), 55, dcgmtest.Blank(which))
			c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "label DCGM_FI_DRIVER_VERSION")
			want := []collector.Device{{ID: "GPU 0", Level: field.GPU, GPU: "0", Node: "nvidia0"}}
			testkit.Equal(t, blank, want, devices(c))
			c.mustSample(t)
			must(t, c.Close())
		}
	}
}

// TestDevices checks the names of GPUs and links, that Rescan notices a link going down, and that a new Open has only the
// links that are up. NVIDIA's engine would need another library for NVSwitches, and real CPUs and adapters.
func TestDevices(t *testing.T) {
	onAll(t, hardware{gpus: 8}, func(t *testing.T, m machine) {
		names := []string{temperature, "DCGM_FI_DEV_NVLINK_GET_STATE", "label DCGM_FI_DRIVER_VERSION", "label DCGM_FI_SYSTEM_DRIVER_VERSION", "label DCGM_FI_DEV_SERIAL"}
		facts := []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}, {Name: "DCGM_FI_SYSTEM_DRIVER_VERSION", Value: "580.65.06"}, {Name: "DCGM_FI_DEV_SERIAL", Value: nvmltest.Serial(3)}}
		gpu := collector.Device{ID: nvmltest.UUID(3), Level: field.GPU, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Facts: facts}
		link := gpu
		link.ID, link.Parent, link.Level, link.Labels = gpu.ID+"/link5", gpu.ID, field.Link, []collector.Label{{Name: "nvlink", Value: "5"}}
		for _, links := range []int{8 * 18, 8*18 - 1, 8 * 18} {
			c := started(t, m, names...)
			n := levels(c.sources[0].Devices())
			testkit.ErrorIf(t, n[field.GPU] != 8 || n[field.Link] != links, "devices by level: %v, want %d links", n, links)
			for _, want := range []collector.Device{gpu, link} {
				testkit.Equal(t, want.ID, want, find(t, c, want.ID))
			}
			changed, err := c.Rescan(t.Context())
			testkit.ErrorIf(t, changed || err != nil, "rescan without a change: %v, %v", changed, err)
			m.setLink(1, 7, links != 8*18)
			c.untilRescan(t)
			must(t, c.Close())
		}
	})
}

// TestLabelsOfOthers checks that a label field of another kind of entity, which fails the engine's whole call, is
// missing alone.
func TestLabelsOfOthers(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		names := []string{temperature, "label DCGM_FI_DRIVER_VERSION"}
		for _, d := range field.All() {
			if others := d.Level == field.CPU || d.Level == field.Switch; d.Kind == field.String && (others || strings.Contains(d.Name, "VGPU")) {
				names = append(names, "label "+d.Name)
				if e := m.simulation(); e != nil {
					e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(d.ID), -3)
				}
			}
		}
		names = append(names, "label DCGM_FI_DEV_SERIAL")
		facts := map[string]string{}
		for _, l := range find(t, started(t, m, names...), nvmltest.UUID(1)).Facts {
			facts[l.Name] = l.Value
		}
		testkit.ErrorIf(t, facts["DCGM_FI_DRIVER_VERSION"] != "580.65.06" || facts["DCGM_FI_DEV_SERIAL"] != nvmltest.Serial(1), "labels: %v", facts)
		for name := range facts {
			testkit.ErrorIf(t, strings.Contains(name, "CPU") || strings.Contains(name, "NVSWITCH") || strings.Contains(name, "VGPU"), "a GPU has the label %s", name)
		}
	})
}

// levels counts the devices of each level.
func levels(all []collector.Device) map[field.Level]int {
	out := map[field.Level]int{}
	for _, d := range all {
		out[d.Level]++
	}
	return out
}

// untilRescan waits until a rescan sees a change.
func (c *opened) untilRescan(tb testing.TB) {
	tb.Helper()
	eventually.OK(tb, "a rescan that sees the change", func() error {
		changed, err := c.Rescan(tb.Context())
		if err == nil && !changed {
			return errors.New("no change yet")
		}
		return err
	})
}

// TestInstances checks that a GPU instance with one compute instance is one device, that several compute instances are
// additional devices, that each has its own values and the UUID of its compute instance, which Kubernetes uses, and that
// Rescan notices added and removed instances.
func TestInstances(t *testing.T) {
	onAll(t, hardware{gpus: 2, mig: []string{"1g", "2g", "3g/2"}}, func(t *testing.T, m machine) {
		names := []string{temperature, "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
		c := open1(t, m.options(), names...)
		c.wantInstances(t, m, []string{"1g", "2g", "3g/2"})
		eventually.OK(t, "values of each", func() error {
			err := c.sample(0)
			for _, d := range devices(c) {
				for _, name := range names[1:] {
					// NVIDIA's engine profiles through GPM, which reports only the GPU instances of a GPU in MIG mode.
					profiled := m.simulation() != nil || d.GPU == "1" || d.Level == field.Instance
					if (name == "DCGM_FI_DEV_FB_USED" || profiled) && !c.has(t, d.ID, name) {
						err = errors.Join(err, fmt.Errorf("%s has no %s", d.ID, name))
					}
				}
			}
			return err
		})
		for _, d := range devices(c) {
			_, has := c.value(t, d.ID, temperature)
			testkit.ErrorIf(t, has != (d.Level == field.GPU), "%s has a temperature: %v", d.ID, has)
		}
		for _, layout := range [][]string{{"1g", "1g", "3g"}, {"3g/2"}, {"2g", "1g"}} {
			m.setMIG(0, layout...)
			c.untilRescan(t)
			must(t, c.Close())
			c = started(t, m, names...)
			c.wantInstances(t, m, layout)
		}
	})
}

// wantInstances compares the devices with a layout of GPU 0. It ignores the driver's order and numbers.
func (c *opened) wantInstances(tb testing.TB, m machine, layout []string) {
	tb.Helper()
	gpu, uuids, split := nvmltest.UUID(0), m.uuids(0), map[string]bool{}
	want, got := map[string]int{}, map[string]int{}
	for _, p := range layout {
		profile, parts, several := strings.Cut(p, "/")
		want["GPU instance "+profile]++
		if n, err := strconv.Atoi(parts); several && err == nil {
			split[profile] = true
			want["compute instance "+profile] += n
		}
	}
	for _, d := range devices(c) {
		if d.Level == field.GPU {
			continue
		}
		profile, _, _ := strings.Cut(d.Instance.Profile, ".")
		kind, parent, at := "GPU instance ", gpu, d.Instance.ID
		if d.Level == field.ComputeInstance {
			kind, parent, at = "compute instance ", gpu+"/"+at, at+"/"+d.Instance.ComputeID
		}
		if got[kind+profile]++; d.ID != gpu+"/"+at || d.Parent != parent || d.UUID != gpu || d.GPU != "0" {
			tb.Errorf("an instance is %+v", d)
		}
		if d.Level == field.Instance {
			at += "/0"
		}
		if uuid := uuids[at]; uuid == "" || d.Instance.UUID != uuid && (d.Level == field.ComputeInstance || !split[profile]) {
			tb.Errorf("%s has the UUID %q, want %q of %v", d.ID, d.Instance.UUID, uuid, uuids)
		}
	}
	testkit.Equal(tb, "instances", want, got)
}
