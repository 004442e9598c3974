package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	kubelet "warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/session"
)

// A vendor that the exporter does not know, made by "How to add a collector" in
// ARCHITECTURE.md. What is here is what a vendor needs, but for a flag and the cgo.

// toyRow is its row of the table.
func toyRow(l toyLibrary) vendor {
	return vendor{
		name: "toy", setting: config.Auto, open: func() collector.Collector { return &toy{library: l} },
		names:   kube.Vendor{Name: "Toy", Domain: "toy.example", Resources: []string{"gpu"}, UUID: "TOY-"},
		present: func() (string, bool) { return "no toy GPU", l.count() > 0 },
	}
}

// toyLibrary is what the vendor's library can do.
type toyLibrary interface {
	count() int
	uuid(i int) string
	temperature(i int) (celsius float64, ok bool)
}

// toy is the collector: a source per GPU.
type toy struct{ library toyLibrary }

func (*toy) Name() string { return "toy" }

func (c *toy) Open(ctx context.Context, fields field.List) (out []collector.Source, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.library.count() == 0 {
		return nil, fmt.Errorf("look for toy GPUs: %w", collector.ErrNoDevices)
	}
	for i := range c.library.count() {
		id := c.library.uuid(i)
		s := &toySource{library: c.library, index: i, devices: []collector.Device{{
			ID: id, Level: field.GPU, GPU: strconv.Itoa(i), UUID: id, Node: "toy" + strconv.Itoa(i), Model: "Toy 1",
		}}}
		for _, r := range fields.Readings() {
			if r.Desc.Name == "DCGM_FI_DEV_GPU_TEMP" {
				s.columns = append(s.columns, collector.Column{Field: r.Desc.ID})
			}
		}
		s.Complete(s.devices, s.columns, fields.Readings(), func(int, *field.Descriptor) collector.Explanation {
			return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "toys have a temperature only"}
		})
		out = append(out, s)
	}
	return out, nil
}

func (*toy) Close() error { return nil }

type toySource struct {
	library toyLibrary
	index   int
	devices []collector.Device
	columns []collector.Column
	collector.Absences
}

func (s *toySource) Devices() []collector.Device { return s.devices }
func (s *toySource) Columns() []collector.Column { return s.columns }

func (s *toySource) Sample(row []float64, due []bool) error {
	v, ok := s.library.temperature(s.index)
	if !ok {
		return collector.ErrDeviceLost
	}
	for i := range row {
		if due[i] {
			row[i] = v
		}
	}
	return nil
}

// toyBoards is a toyLibrary written by hand.
type toyBoards struct {
	mu   sync.Mutex
	n    int
	lost map[string]bool
	hung map[string]chan struct{}
}

func (b *toyBoards) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *toyBoards) count() (n int) {
	b.set(func() { n = b.n })
	return n
}

func (*toyBoards) uuid(i int) string { return fmt.Sprintf("TOY-00000000-1111-2222-3333-%012d", i) }

func (b *toyBoards) temperature(i int) (v float64, ok bool) {
	var hung chan struct{}
	id := b.uuid(i)
	b.set(func() { hung, ok = b.hung[id], !b.lost[id] })
	if hung != nil {
		<-hung
	}
	if !ok {
		return math.NaN(), false
	}
	return 40 + float64(i), true
}

func TestToyConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name:      "toy",
		Allocates: true, // the library above does
		New: func(testing.TB) collectortest.Rig {
			b := &toyBoards{n: 2, lost: map[string]bool{}, hung: map[string]chan struct{}{}}
			return collectortest.Rig{
				Factory:       toyRow(b).open,
				LoseDevice:    func(id string) { b.set(func() { b.lost[id] = true }) },
				RestoreDevice: func(id string) { b.set(func() { b.lost[id] = false }) },
				Hang: func(id string) func() {
					c := make(chan struct{})
					b.set(func() { b.hung[id] = c })
					return func() { b.set(func() { delete(b.hung, id) }); close(c) }
				},
				FailOpen: func() func() {
					b.set(func() { b.n = 0 })
					return func() { b.set(func() { b.n = 2 }) }
				},
			}
		},
	})
}

// The row of the table is all that the exporter needs: the vendor's GPUs are on the
// page, with the pods that have them by its resource and its ids.
func TestToyOnThePage(t *testing.T) {
	b := &toyBoards{n: 2}
	k := kubelet.Start(t)
	k.Set(
		kubelet.Pod("ml", "train-0", kubelet.Container("main", kubelet.Devices("toy.example/gpu", b.uuid(1)))),
		kubelet.Pod("ml", "network", kubelet.Container("main", kubelet.Devices("toy.example/nic", b.uuid(0)))))
	cfg := wanted(t, "-k", "--pod-resources-kubelet-socket="+k.Socket(), "--process-values=false")
	list := parseCSV(t, cfg, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n")
	a := &app{streams: streams{out: io.Discard, err: io.Discard}, flags: config.NewSet(noEnvironment)}
	p, err := newPipeline(a, cfg, []vendor{toyRow(b)}, list, zap.NewNop())
	must(t, err)
	must(t, sampleOnce(t.Context(), p.engine, p.owners, time.Minute, func(context.Context, []session.CollectorStatus) error {
		p.addPages()
		page := string(p.renderer.Page(exposition.Text, false))
		for gpu, want := range []string{`pci_bus_id="",device="toy0",modelName="Toy 1",hostname=`, `container="main",namespace="ml",pod="train-0"`} {
			_, series, _ := strings.Cut(page, fmt.Sprintf("\nDCGM_FI_DEV_GPU_TEMP{gpu=%q,UUID=%q", strconv.Itoa(gpu), b.uuid(gpu)))
			series, _, _ = strings.Cut(series, "\n")
			if !strings.Contains(series, want) || !strings.HasSuffix(series, fmt.Sprintf(" %d", 40+gpu)) || strings.Contains(series, "network") {
				t.Errorf("GPU %d: got %s, want %s in it", gpu, series, want)
			}
		}
		return nil
	}))
}
