package owner

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

const (
	benchGPUs   = 8
	benchFields = 25
	benchPods   = 142
)

// node8 is a node of 8 GPUs × 25 fields, with the input of its ring.
type node8 struct {
	board  *view.Board
	source *view.Source
	row    []float64
	stamps []int64
}

func newNode8() *node8 {
	s := &view.Source{Collector: "bench"}
	for i := range benchFields {
		d := &field.Descriptor{ID: field.ID(2000 + i), Level: field.GPU}
		s.Fields.Fields = append(s.Fields.Fields, field.Field{Desc: d, Name: fmt.Sprintf("DCGM_FI_DEV_FIELD_%03d", i), Scale: 1, Help: "A field of a benchmark."})
	}
	for g := range benchGPUs {
		s.Devices = append(s.Devices, gpu(g))
		for i := range benchFields {
			s.Columns = append(s.Columns, collector.Column{Device: g, Field: field.ID(2000 + i)})
		}
	}
	s.Ring = ring.Make(16, benchGPUs, len(s.Columns))
	n := &node8{source: s, board: &view.Board{}, row: make([]float64, len(s.Columns)), stamps: make([]int64, benchGPUs)}
	n.tick(1)
	n.board.Store(&view.View{Version: 1, Sources: []*view.Source{s}})
	return n
}

func (n *node8) tick(v int) {
	now := time.Now().UnixNano()
	for i := range n.row {
		n.row[i] = float64(v*37%2000 + i)
	}
	for i := range n.stamps {
		n.stamps[i] = now
	}
	n.source.Ring.Append(now, n.stamps, n.row)
}

// kubeletPods returns 142 pods. 8 of them have a GPU each, or 32 have a quarter of one. The others have no devices.
func kubeletPods(replicas int) []kube.Pod {
	var out []kube.Pod
	for i := range benchPods {
		p := kube.Pod{PodName: kube.PodName{Namespace: fmt.Sprintf("team-%d", i%10), Name: fmt.Sprintf("worker-%05d-abcde", i)}, Containers: []kube.Container{{Name: "main"}}}
		if i < benchGPUs*replicas {
			id := uuid(i % benchGPUs)
			if replicas > 1 {
				id += fmt.Sprintf("::%d", i/benchGPUs)
			}
			p.Containers[0].Devices = []kube.Devices{{Resource: "nvidia.com/gpu", IDs: []string{id}}}
		}
		out = append(out, p)
	}
	return out
}

// snapshot returns an answer of the kubelet. Like kube.Kubelet, it keeps only pods with devices.
func snapshot(replicas int) *kube.Allocations {
	pods := slices.DeleteFunc(kubeletPods(replicas), func(p kube.Pod) bool { return p.Containers[0].Devices == nil })
	return &kube.Allocations{Version: 1, Pods: pods}
}

func forModes(b *testing.B, run func(b *testing.B, replicas int)) {
	for _, mode := range []struct {
		name     string
		replicas int
	}{{"plain", 1}, {"replicas=4", 4}} {
		b.Run(mode.name, func(b *testing.B) {
			b.ReportAllocs()
			run(b, mode.replicas)
		})
	}
}

// BenchmarkScrapeWithOwners makes pages with and without mapping, after each tick and without a tick.
func BenchmarkScrapeWithOwners(b *testing.B) {
	forModes(b, func(b *testing.B, replicas int) {
		n, kubelet := newNode8(), new(answers[kube.Allocations])
		kubelet.Store(snapshot(replicas))
		k := New(n.board, Options{Allocations: kubelet, Virtual: replicas > 1})
		for name, r := range map[string]*exposition.Renderer{
			"on":  exposition.New(n.board, exposition.Options{Hostname: "node-1", Owners: k, StaleAfter: time.Hour}),
			"off": exposition.New(n.board, exposition.Options{Hostname: "node-1", StaleAfter: time.Hour}),
		} {
			for _, ticks := range []bool{true, false} {
				b.Run(fmt.Sprintf("owners=%s/ticks=%v", name, ticks), func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						if ticks {
							n.tick(i)
						}
						r.Page(exposition.Text, false)
					}
				})
			}
		}
	})
}

// BenchmarkPlainMapping is the baseline: each scrape builds a map of devices to pods from the kubelet's answer, copies
// each series per pod with labels in maps, and writes the page. It excludes the call to the kubelet.
func BenchmarkPlainMapping(b *testing.B) {
	forModes(b, func(b *testing.B, replicas int) {
		pods, read := kubeletPods(replicas), plainSeries()
		var out bytes.Buffer
		var mapping time.Duration
		for b.Loop() {
			start := time.Now()
			series := mapped(read, pods)
			mapping += time.Since(start)
			out.Reset()
			writePlain(&out, series)
		}
		n := bytes.Count(out.Bytes(), []byte("pod="))
		testkit.FatalIf(b, n != benchGPUs*benchFields*replicas, "%d series with a pod", n)
		b.ReportMetric(float64(mapping.Nanoseconds())/float64(b.N), "ns/mapping")
	})
}

type plain struct {
	name               string
	device             collector.Device
	value              string
	labels, attributes map[string]string
}

func plainSeries() (out []plain) {
	for i := range benchFields {
		for g := range benchGPUs {
			out = append(out, plain{name: fmt.Sprintf("DCGM_FI_DEV_FIELD_%03d", i), device: gpu(g), value: "17", labels: map[string]string{}, attributes: map[string]string{}})
		}
	}
	return out
}

func mapped(series []plain, pods []kube.Pod) (out []plain) {
	type user struct{ namespace, pod, container, vgpu string }
	by := map[string][]user{}
	for _, p := range pods {
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				for _, id := range d.IDs {
					base, replica, _ := strings.Cut(id, "::")
					by[base] = append(by[base], user{p.Namespace, p.Name, c.Name, replica})
				}
			}
		}
	}
	for _, s := range series {
		for _, u := range by[s.device.UUID] {
			c := s
			c.labels, c.attributes = maps.Clone(s.labels), maps.Clone(s.attributes)
			c.attributes["namespace"], c.attributes["pod"], c.attributes["container"] = u.namespace, u.pod, u.container
			if u.vgpu != "" {
				c.attributes["vgpu"] = u.vgpu
			}
			out = append(out, c)
		}
		if len(by[s.device.UUID]) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func writePlain(out *bytes.Buffer, series []plain) {
	last := ""
	for i := range series {
		s := &series[i]
		if s.name != last {
			fmt.Fprintf(out, "# HELP %s A field of a benchmark.\n# TYPE %s gauge\n", s.name, s.name)
			last = s.name
		}
		fmt.Fprintf(out, "%s{gpu=%q,UUID=%q,pci_bus_id=%q,device=%q,modelName=%q,hostname=%q", s.name, s.device.GPU, s.device.UUID, s.device.PCIBusID, s.device.Node, s.device.Model, "node-1")
		for _, m := range []map[string]string{s.labels, s.attributes} {
			for _, name := range slices.Sorted(maps.Keys(m)) {
				fmt.Fprintf(out, ",%s=%q", name, m[name])
			}
		}
		fmt.Fprintf(out, "} %s\n", s.value)
	}
}
