// Package signs derives early signs of faults from every sampled row: link errors, throttling, and a GPU that deviates
// from its peers. The rules of package health judge them, and docs/health.md explains the computations.
//
// Signs follows a rows.Reader and starts no goroutine. In steady state it allocates nothing. A sign
// without its readings has no value.
package signs

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// Owners returns the users of devices. owner.Keeper implements it.
type Owners interface {
	Version() uint64
	Users(*collector.Device) []owner.Owner
}

const fresh = int64(time.Minute) // maximum age of a device's newest sample

// Signs derives readings for all devices. It implements health.Derived.
type Signs struct {
	owners Owners // nil: users are unknown

	mu      sync.Mutex         // guards all fields below; held only to compute
	now     int64              // time of the last Update, Unix ns
	follows []follow           // by index of the source
	devices map[string]*device // by ID, until the reader forgets them
	present []*device          // devices of the View
	peers   peers
}

// follow maps the cells of a source to their signs.
type follow struct {
	devices []*device // parallel to the source's Devices; nil: another source supplies the device
	taps    []tap
}

// tap maps a cell to its sign.
type tap struct {
	use          use
	device, cell int
	last         *float64 // last value of the cell
}

// New returns Signs for the rows of a reader. If owners is nil, the users of devices are unknown.
func New(reader *rows.Reader, owners Owners) *Signs {
	s := &Signs{owners: owners, devices: make(map[string]*device)}
	reader.Follow(s)
	return s
}

// Update updates the derived readings from the rows read so far.
func (s *Signs) Update(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now.UnixNano()
	s.peers.sync(s)
	for _, d := range s.present {
		d.links.worst = nil
	}
	for _, d := range s.present {
		if d.links.known {
			d.links.sum(s.now)
			for _, of := range []*device{d, d.gpu} {
				if of != nil && (of.links.worst == nil || of.links.worst.links.share < d.links.share) {
					of.links.worst = d
				}
			}
		}
	}
	for _, d := range s.present {
		if d.fresh(s.now) {
			d.derive(s.now)
		}
	}
}

// Value returns a derived reading of a device, or NaN if it is unknown.
func (s *Signs) Value(device string, of field.Derived) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[device]; d != nil && d.fresh(s.now) {
		return d.values[of]
	}
	return math.NaN()
}

// Evidence explains a derived reading.
func (s *Signs) Evidence(device string, of field.Derived) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[device]; d != nil {
		return d.describe(of)
	}
	return ""
}

// Bind replaces the follows for a new View.
func (s *Signs) Bind(_ *view.View, sources []rows.Source, _ time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows, s.present, s.peers.groups = make([]follow, len(sources)), s.present[:0:0], nil
	for n := range sources {
		src, f := &sources[n], &s.follows[n]
		f.devices = make([]*device, len(src.Devices))
		for i := range src.Devices {
			if !src.Supplies[i] {
				continue
			}
			id := src.Devices[i].ID
			d := s.devices[id]
			if d == nil {
				d = &device{last: make(map[cell]*float64)}
				for k := range d.values {
					d.values[k] = math.NaN()
				}
				s.devices[id] = d
			}
			d.Device, d.every, d.divided = src.Devices[i], int64(src.IntervalOf(i)), false
			f.devices[i] = d
			s.present = append(s.present, d)
		}
		f.connect(src)
	}
	for _, d := range s.present {
		if d.gpu = s.devices[d.Parent]; d.gpu != nil && d.Level != field.Link {
			d.gpu.divided = true
		}
	}
}

// Forget implements rows.Forgetter.
func (s *Signs) Forget(device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.devices, device)
}

func (f *follow) connect(s *rows.Source) {
	for i := range s.Columns {
		c := &s.Columns[i]
		d, use := f.devices[c.Device], uses[c.Field]
		if use == nil || c.Buffer > 0 || d == nil {
			continue
		}
		if slices.ContainsFunc(c.Labels, func(l collector.Label) bool { return l.Name == "kind" && !slices.Contains(linkKindsRead, l.Value) }) {
			continue
		}
		k := cell{c.Field, fmt.Sprint(c.Labels)}
		if d.last[k] == nil {
			d.last[k] = new(math.NaN())
		}
		f.taps = append(f.taps, tap{use, c.Device, i, d.last[k]})
	}
}

// Row processes a row.
func (s *Signs) Row(row *rows.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.follows[row.Source]
	for i, d := range f.devices {
		if d != nil && row.Devices[i].Sampled {
			d.since, d.sampled = int64(row.Devices[i].Millis*float64(time.Millisecond)), row.Stamps[i]
		}
	}
	for i := range f.taps {
		t := &f.taps[i]
		if v := row.Cells[t.cell]; row.Devices[t.device].Sampled && v >= 0 && v <= math.MaxFloat64 { // otherwise blank, or nonsense from a broken process
			t.use(f.devices[t.device], v, *t.last)
			*t.last = v
		}
	}
}
