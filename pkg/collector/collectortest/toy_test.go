package collectortest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// toyWorld has two boards with a link each, and a collector for them that keeps
// the contract unless it has a flaw. Each flaw breaks one part of the contract.
type toyWorld struct {
	flaw string
	tb   testing.TB // of the running subtest

	mu       sync.Mutex
	boards   int
	lost     map[string]bool
	hung     map[string]chan struct{}
	raised   map[string]float64
	failing  bool
	opens    int
	closes   int
	open     bool // a collector
	leakDone chan struct{}
}

const (
	toyUtil  field.ID = 203
	toyTemp  field.ID = 150
	toyBytes field.ID = 1530
	toyPeer  field.ID = field.P2PStatus
)

func toyFields() field.List {
	return field.List{Fields: []field.Field{
		{Desc: &field.Descriptor{ID: toyUtil, Name: "UTIL", Level: field.GPU, Max: 100}, Name: "UTIL", Scale: 1},
		{Desc: &field.Descriptor{ID: toyTemp, Name: "TEMP", Kind: field.Double, Level: field.GPU, Max: 120}, Name: "TEMP", Scale: 1},
		{Desc: &field.Descriptor{ID: toyBytes, Name: "BYTES", Level: field.Link, Max: 1e15}, Name: "BYTES", Scale: 1},
		{Desc: &field.Descriptor{ID: toyPeer, Name: "P2P", Level: field.GPU, Max: 6}, Name: "P2P", Scale: 1},
		{Desc: &field.Descriptor{ID: field.XIDEvent, Name: "XID", Level: field.GPU, Max: 1000, Event: true}, Name: "XID", Scale: 1},
		{Desc: &field.Descriptor{ID: 1, Name: "DRIVER", Kind: field.String}, Name: "driver", Type: field.Label},
	}}
}

func (w *toyWorld) rig(tb testing.TB) Rig {
	tb.Helper()
	w.tb = tb
	w.boards = 2
	w.lost, w.hung, w.raised = map[string]bool{}, map[string]chan struct{}{}, map[string]float64{}
	w.leakDone = make(chan struct{})
	tb.Cleanup(func() { close(w.leakDone) })
	return Rig{
		Factory:       func() collector.Collector { return &toy{w: w} },
		LoseDevice:    func(id string) { w.set(func() { w.lost[id] = true }) },
		RestoreDevice: func(id string) { w.set(func() { w.lost[id] = w.flaw == "lost for ever" }) },
		Hang: func(id string) func() {
			c := make(chan struct{})
			w.set(func() { w.hung[id] = c })
			return func() { w.set(func() { delete(w.hung, id) }); close(c) }
		},
		ChangeColumns: func() { w.set(func() { w.boards++ }) },
		FailOpen: func() func() {
			w.set(func() { w.failing = true })
			return func() { w.set(func() { w.failing = w.flaw == "fails for ever" }) }
		},
		RaiseEvent: func(id string, _ field.ID, v float64) { w.set(func() { w.raised[id] = v }) },
	}
}

func (w *toyWorld) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

type toy struct {
	w      *toyWorld
	boards int
	open   bool
	closed bool
}

var _ collector.Rescanner = (*toy)(nil)

func (c *toy) Name() string {
	if c.w.flaw == "name" {
		return "other"
	}
	return "toy"
}

func (c *toy) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	w := c.w
	if err := ctx.Err(); err != nil && w.flaw != "ignores ctx" {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opens++
	testkit.ErrorIf(w.tb, w.open, "the suite opens a collector while another is open")
	if w.flaw == "opens once" && w.closes > 0 {
		return nil, errors.New("already opened once")
	}
	if w.failing && w.flaw != "fails quietly" {
		return nil, fmt.Errorf("open toy: %w", collector.ErrNotLoaded)
	}
	if hung := firstHung(w.hung); hung != nil && w.flaw == "hang holds open" {
		w.mu.Unlock()
		<-hung
		w.mu.Lock()
	}
	if w.flaw == "lost stops open" && len(w.lost) > 0 && w.lost[toyID(w.boards-1)] {
		return nil, collector.ErrDeviceLost
	}
	w.leak()
	c.boards = w.boards
	if w.flaw == "change is stale" {
		c.boards = 2
	}
	var out []collector.Source
	for i := range c.boards {
		if w.flaw == "cancelled halfway" && ctx.Err() != nil {
			break
		}
		out = append(out, c.source(i, fields))
	}
	if w.flaw == "no source" {
		return nil, nil
	}
	w.open, c.open = true, true
	return out, nil
}

func (w *toyWorld) leak() {
	switch w.flaw {
	case "leaks goroutine":
		go func(done chan struct{}) { <-done }(w.leakDone)
	case "leaks descriptor":
		f := testkit.Get(os.Open(os.DevNull))(w.tb)
		w.tb.Cleanup(func() { _ = f.Close() })
	}
}

func (c *toy) Rescan(context.Context) (bool, error) {
	switch c.w.flaw {
	case "rescan cries wolf":
		return true, nil
	case "rescan fails":
		return false, errors.New("no")
	case "change unnoticed":
		return false, nil
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.boards != c.boards, nil
}

func (c *toy) Close() error {
	if c.closed && c.w.flaw == "close once" {
		return errors.New("already closed")
	}
	c.closed = true
	c.w.set(func() {
		c.w.closes++
		c.w.open = c.w.open && !c.open
	})
	c.open = false
	return nil
}

func toyID(i int) string { return fmt.Sprintf("GPU-%d", i) }

type toySource struct {
	w       *toyWorld
	id      string
	devices []collector.Device
	columns []collector.Column
	n       float64
	kept    []float64
	garbage []byte
	absent  []collector.Absence
}

func (s *toySource) Explanations() []collector.Explanation {
	switch s.w.flaw {
	case "explanation missing":
		return nil
	case "reason without words":
		return []collector.Explanation{{Reason: collector.ReasonUnsupported}}
	}
	return []collector.Explanation{toyReason()}
}

func toyReason() collector.Explanation {
	return collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "toys do not have it"}
}

func (s *toySource) Absent() []collector.Absence {
	if s.w.flaw == "reasons change" {
		s.absent[0].Field++
	}
	return append([]collector.Absence(nil), s.absent...)
}

// explain adds a reason for each field without a column.
func (s *toySource) explain(fields field.List) {
	var rest collector.Absences
	rest.Complete(s.devices, s.columns, fields.Readings(), func(int, *field.Descriptor) collector.Explanation { return toyReason() })
	s.absent = rest.Absent()
	switch s.w.flaw {
	case "no reason":
		s.absent = s.absent[1:]
	case "reason of a column":
		s.absent = append(s.absent, collector.Absence{Field: s.columns[0].Field})
	case "reason twice":
		s.absent = append(s.absent, s.absent[0])
	case "reason of no device":
		s.absent[0].Device = 9
	}
}

func (c *toy) source(i int, fields field.List) *toySource {
	id, flaw := toyID(i), c.w.flaw
	gpu := collector.Device{ID: id, Level: field.GPU, GPU: fmt.Sprint(i), UUID: id, Model: "toy"}
	link := collector.Device{ID: id + "/link1", Parent: id, Level: field.Link, GPU: gpu.GPU, UUID: id, Labels: []collector.Label{{Name: "nvlink", Value: "1"}}}
	for _, f := range fields.Labels() {
		gpu.Facts = append(gpu.Facts, collector.Label{Name: f.Name, Value: "550.1"})
	}
	switch flaw {
	case "empty id":
		link.ID = ""
	case "id twice":
		link.ID = "GPU-0/link1"
	case "orphan":
		link.Parent = "GPU-9"
	case "no uuid":
		gpu.UUID = ""
	case "not utf8":
		gpu.Model = "\xff"
	case "new ids":
		link.ID += fmt.Sprint(c.w.opens)
	case "foreign fact":
		gpu.Facts = append(gpu.Facts, collector.Label{Name: "other", Value: "x"})
	case "empty fact":
		gpu.Facts[0].Value = ""
	case "fact twice":
		gpu.Facts = append(gpu.Facts, gpu.Facts[0])
	}
	s := &toySource{w: c.w, id: id, devices: []collector.Device{gpu, link}}
	for _, r := range fields.Readings() {
		s.bind(r.Desc.ID, flaw)
	}
	s.flawedColumns(flaw, fields)
	s.explain(fields)
	return s
}

func (s *toySource) bind(id field.ID, flaw string) {
	switch id {
	case toyUtil, toyTemp, field.XIDEvent:
		s.columns = append(s.columns, collector.Column{Field: id})
	case toyBytes:
		s.columns = append(s.columns, collector.Column{Device: 1, Field: id})
	case toyPeer:
		labels := []collector.Label{{Name: "link_status", Value: "OK"}, {Name: "peer_gpu", Value: "7"}}
		switch flaw {
		case "labels unsorted":
			slices.Reverse(labels)
		case "label missing":
			labels = labels[:1]
		case "label twice":
			labels[1].Name = labels[0].Name
		}
		s.columns = append(s.columns, collector.Column{Field: id, Labels: labels})
	case unknown().ID:
		if flaw == "unknown column" {
			s.columns = append(s.columns, collector.Column{Field: id})
		}
	}
}

func (s *toySource) flawedColumns(flaw string, fields field.List) {
	switch flaw {
	case "column out of range":
		s.columns[0].Device = 2
	case "column not asked":
		s.columns = append(s.columns, collector.Column{Field: 155})
	case "column twice":
		s.columns = append(s.columns, s.columns[0])
	case "no columns":
		s.columns = nil
	case "unknown drops rest":
		if _, ok := descriptors(fields)[unknown().ID]; ok {
			s.columns = s.columns[:1]
		}
	}
}

func (s *toySource) Devices() []collector.Device { return s.devices }
func (s *toySource) Columns() []collector.Column { return s.columns }

func (s *toySource) Sample(row []float64, due []bool) error {
	if err := s.fault(); err != nil {
		return err
	}
	s.n++
	flaw := s.w.flaw
	for i := range row {
		switch {
		case flaw == "cell skipped" && i == 1:
			continue
		case flaw == "writes all" || due[i]:
			row[i] = s.value(s.columns[i].Field)
		}
	}
	switch flaw {
	case "due changed":
		due[0] = false
	case "columns change":
		s.columns[0].Field++
	case "devices change":
		s.devices[0].Model += "x"
	case "keeps row":
		if s.kept != nil {
			s.kept[0] = 7
		}
		s.kept = row
	case "reads old row":
		if s.kept != nil {
			row[0] = s.kept[0]
		}
		s.kept = row
	case "allocates":
		s.garbage = make([]byte, 64)
	}
	return nil
}

func (s *toySource) value(id field.ID) float64 {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch flaw := w.flaw; {
	case flaw == "blank of another source":
		var other collector.Absences
		other.Blank(collector.ReasonBlank, "one")
		return other.Blank(collector.ReasonBlank, "another")
	case flaw == "blank of the session":
		return collector.NotSampled()
	case flaw == "all blank" || flaw == "blank after close" && w.closes > 0:
		return math.NaN()
	case id == field.XIDEvent:
		return s.event()
	case flaw == "sentinel" && id == toyTemp:
		return 140737488355328
	case flaw == "implausible" && id == toyUtil:
		return 808e6
	case flaw == "fraction" && id == toyUtil:
		return 0.5
	case id == toyUtil || id == toyTemp:
		return math.Mod(s.n, 100)
	case id == toyBytes:
		return s.n
	}
	return 0
}

func (s *toySource) event() float64 {
	v, ok := s.w.raised[s.id]
	switch {
	case s.w.flaw == "event always":
		return 13
	case !ok || s.w.flaw == "event ignored":
		return math.NaN()
	case s.w.flaw == "event repeats":
		return v
	}
	delete(s.w.raised, s.id)
	return v
}

func (s *toySource) fault() error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	hung := w.hung[s.id]
	if w.flaw == "hang holds others" {
		hung = firstHung(w.hung)
	}
	if hung != nil && w.flaw != "hang unnoticed" {
		w.mu.Unlock()
		<-hung
		w.mu.Lock()
	}
	switch {
	case w.flaw == "sample fails":
		return errors.New("no")
	case w.flaw == "hang breaks others" && len(w.hung) > 0:
		return errors.New("another one hangs")
	case w.flaw == "fails after close" && w.closes > 0:
		return errors.New("closed")
	case w.flaw == "lost takes others" && w.lost[toyID(1)]:
		return collector.ErrDeviceLost
	case w.lost[s.id] && w.flaw != "lost unnoticed":
		return fmt.Errorf("sample %q: %w", s.id, collector.ErrDeviceLost)
	case w.flaw == "change is an error" && w.boards != 2:
		return errors.New("what now")
	}
	return nil
}

func firstHung(m map[string]chan struct{}) chan struct{} {
	for _, c := range m {
		return c
	}
	return nil
}
