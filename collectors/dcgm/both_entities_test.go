//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// TestDevices: GPUs and their links, each named as the contract says. NVIDIA's engine
// needs another library for NVSwitches, and NVIDIA's CPUs and adapters for those.
func TestDevices(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 8}, "embedded": {gpus: 8, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				m.setLink(1, 4, false)
				names := []string{temperature, "DCGM_FI_DEV_NVLINK_GET_STATE", "label DCGM_FI_DRIVER_VERSION", "label DCGM_FI_SYSTEM_DRIVER_VERSION", "label DCGM_FI_DEV_SERIAL"}
				c := open1(t, m.options(), names...)
				eventually.True(t, "a link that is down", func() bool {
					if changed, err := c.Rescan(t.Context()); err != nil {
						t.Fatal(err)
					} else if changed {
						if err := c.Close(); err != nil {
							t.Fatal(err)
						}
						c = open1(t, m.options(), names...)
					}
					return c.count()[field.Link] == 8*18-1
				})
				if n := c.count(); n[field.GPU] != 8 {
					t.Errorf("devices by level: %v", n)
				}
				facts := []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}, {Name: "DCGM_FI_SYSTEM_DRIVER_VERSION", Value: "580.65.06"}, {Name: "DCGM_FI_DEV_SERIAL", Value: nvmltest.Serial(3)}}
				gpu := collector.Device{ID: nvmltest.UUID(3), Level: field.GPU, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Facts: facts}
				link := gpu
				link.ID, link.Parent, link.Level, link.Labels = gpu.ID+"/link5", gpu.ID, field.Link, []collector.Label{{Name: "nvlink", Value: "5"}}
				for _, want := range []collector.Device{gpu, link} {
					if diff := cmp.Diff(want, find(t, c, want.ID)); diff != "" {
						t.Errorf("%s (-want +got):\n%s", want.ID, diff)
					}
				}
			})
		})
	}
}

// TestLabelsOfOthers: a label that only another kind of entity has, for which an engine
// fails the whole call, is left out, and costs no other.
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
		if facts["DCGM_FI_DRIVER_VERSION"] != "580.65.06" || facts["DCGM_FI_DEV_SERIAL"] != nvmltest.Serial(1) {
			t.Errorf("labels: %v", facts)
		}
		for name := range facts {
			if strings.Contains(name, "CPU") || strings.Contains(name, "NVSWITCH") || strings.Contains(name, "VGPU") {
				t.Errorf("a GPU has the label %s", name)
			}
		}
	})
}

// count is how many devices of the GPUs' source there are of each level.
func (c *opened) count() map[field.Level]int {
	out := map[field.Level]int{}
	for _, d := range c.sources[0].Devices() {
		out[d.Level]++
	}
	return out
}

// TestLinkComesAndGoes: a rescan sees it, and a new binding has the links that are up.
func TestLinkComesAndGoes(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		names := []string{temperature, "DCGM_FI_DEV_NVLINK_GET_STATE"}
		c := started(t, m, names...)
		links := c.count()[field.Link]
		for _, up := range []bool{false, true} {
			if changed, err := c.Rescan(t.Context()); changed || err != nil {
				t.Errorf("rescan of what is as before: %v, %v", changed, err)
			}
			m.setLink(1, 7, up)
			c.untilRescan(t)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			links += map[bool]int{false: -1, true: 1}[up]
			c = started(t, m, names...)
			if got := c.count()[field.Link]; got != links {
				t.Errorf("link up %v: %d links, want %d", up, got, links)
			}
		}
	})
}

// untilRescan waits until a rescan sees a change.
func (c *opened) untilRescan(tb testing.TB) {
	tb.Helper()
	eventually.OK(tb, "a rescan that sees the change", func() error {
		changed, err := c.Rescan(tb.Context())
		if err == nil && !changed {
			return errors.New("it is all as before")
		}
		return err
	})
}

// TestInstances: a GPU instance with one compute instance is one device, with several
// they are further devices; each has the UUID of its compute instance, which
// Kubernetes knows, and its own values. An instance more or less is seen.
func TestInstances(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 2, mig: []string{"1g", "2g", "3g/2"}}, "embedded": {gpus: 2, mig: []string{"1g", "2g", "3g/2"}, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				names := []string{temperature, "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
				c := open1(t, m.options(), names...)
				c.wantInstances(t, m, []string{"1g", "2g", "3g/2"})
				eventually.OK(t, "values of each", func() error {
					err := c.sample(0)
					for _, d := range devices(c) {
						for _, name := range names[1:] {
							// GPM, by which NVIDIA's engine profiles, knows only GPU instances if there are some.
							profiled := m.simulation() != nil || d.GPU == "1" || d.Level == field.Instance
							if (name == "DCGM_FI_DEV_FB_USED" || profiled) && !c.has(t, d.ID, name) {
								err = errors.Join(err, fmt.Errorf("%s has no %s", d.ID, name))
							}
						}
					}
					return err
				})
				for _, d := range devices(c) {
					if _, has := c.value(t, d.ID, temperature); has != (d.Level == field.GPU) {
						t.Errorf("%s has a temperature: %v", d.ID, has)
					}
				}
				for _, layout := range [][]string{{"1g", "1g", "3g"}, {"3g/2"}, {"2g", "1g"}} {
					m.setMIG(0, layout...)
					c.untilRescan(t)
					if err := c.Close(); err != nil {
						t.Fatal(err)
					}
					c = started(t, m, names...)
					c.wantInstances(t, m, layout)
				}
			})
		})
	}
}

// wantInstances compares the devices with a layout of GPU 0, in whatever order and
// numbers the driver has given.
func (c *opened) wantInstances(tb testing.TB, m machine, layout []string) {
	tb.Helper()
	want, got := map[string]int{}, map[string]int{}
	uuids := m.uuids(0)
	for _, p := range layout {
		profile, parts, split := strings.Cut(p, "/")
		want["instance "+profile]++
		if n, err := strconv.Atoi(parts); split && err == nil {
			want["compute "+profile] += n
		}
	}
	gpu := nvmltest.UUID(0)
	for _, d := range devices(c) {
		if d.Level == field.GPU {
			continue
		}
		profile, _, _ := strings.Cut(d.Instance.Profile, ".")
		id := gpu + "/" + d.Instance.ID
		kind := "instance "
		if d.Level == field.ComputeInstance {
			kind = "compute "
			if d.Parent != id {
				tb.Errorf("%s is part of %q, want %q", d.ID, d.Parent, id)
			}
			id += "/" + d.Instance.ComputeID
		} else if d.Parent != gpu {
			tb.Errorf("%s is part of %q, want the GPU", d.ID, d.Parent)
		}
		if got[kind+profile]++; d.ID != id || d.UUID != gpu || d.GPU != "0" {
			tb.Errorf("an instance is %+v", d)
		}
		at := d.Instance.ID + "/" + d.Instance.ComputeID
		if d.Instance.ComputeID == "" {
			at += "0"
		}
		hasParts := d.Level == field.Instance && want["compute "+profile] > 0
		if uuid := uuids[at]; d.Instance.UUID != uuid && !hasParts || uuid == "" {
			tb.Errorf("%s has the UUID %q, want %q of %v", d.ID, d.Instance.UUID, uuid, uuids)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("instances (-want +got):\n%s", diff)
	}
}
