// Package report holds what the accounts of an owner say when they are put together: the JSON of /api/v1/owners, its client,
// the sum over nodes, one sentence of judgement, and a table for people.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Owner is who uses a board. It is comparable.
type Owner struct {
	Kind      string `json:"kind"` // a constant below
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"` // the pod's, if known
	Container string `json:"container,omitempty"`
	Job       string `json:"job,omitempty"`
}

// Kinds of owners.
const (
	KindPod          = "pod"
	KindJob          = "job"
	KindNobody       = "nobody" // the board has no owner
	KindUnattributed = "unattributed"
)

// ID names the owner in addresses: job:1234, pod:namespace:name:uid, or the kind. Containers of a pod have the same one.
func (o *Owner) ID() string {
	switch o.Kind {
	case KindJob:
		return o.Kind + ":" + o.Job
	case KindPod:
		return strings.TrimSuffix(o.Kind+":"+o.Namespace+":"+o.Pod+":"+o.UID, ":")
	}
	return o.Kind
}

// Report has all that an owner has used, on one node or on several.
type Report struct {
	ID string `json:"id"`
	Owner
	Nodes     []string   `json:"nodes"`
	Came      time.Time  `json:"came"`
	Left      *time.Time `json:"left,omitempty"` // absent while it has a GPU
	GPUs      int        `json:"gpus"`           // boards
	Total     Use        `json:"total"`
	Boards    []Board    `json:"boards,omitempty"`
	Judgement string     `json:"judgement"`
}

// Board has the use of one board.
type Board struct {
	Node      string     `json:"node"`
	GPU       string     `json:"gpu"`
	UUID      string     `json:"uuid,omitempty"`
	Model     string     `json:"model,omitempty"`
	Container string     `json:"container,omitempty"`
	Came      time.Time  `json:"came"`
	Left      *time.Time `json:"left,omitempty"`
	Use
	Verdicts []Verdict `json:"verdicts,omitempty"` // while the owner had it; the first 16
}

// Verdict is a change of a board's health.
type Verdict struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Use adds up what was used. Values without a reading are absent.
type Use struct {
	GPUSeconds float64            `json:"gpu_seconds"` // of whole boards
	Energy     float64            `json:"energy_joules"`
	IdleEnergy float64            `json:"idle_energy_joules"`
	FromPower  float64            `json:"energy_from_power_joules,omitempty"` // the part that was measured without the board's counter
	Methods    map[string]float64 `json:"energy_by_method_joules"`
	Busy       *Spread            `json:"utilization,omitempty"`     // 0 to 1
	Tensor     *Spread            `json:"tensor_activity,omitempty"` // 0 to 1
	OFU        *Spread            `json:"ofu,omitempty"`             // 0 to 1
	Spent      map[string]float64 `json:"spent_seconds"`             // their sum is GPUSeconds
	Throttled  map[string]float64 `json:"throttled_seconds,omitempty"`
	Memory     *float64           `json:"memory_peak_bytes,omitempty"`
	MemorySize *float64           `json:"memory_size_bytes,omitempty"`
	XIDs       int                `json:"xids"`
	Unused     *float64           `json:"unused_seconds,omitempty"` // since something ran last; absent once the owner has left
}

// Activities.
const (
	Compute   = "compute"   // a pipe of the SMs worked
	Memory    = "memory"    // the memory was busy, and no pipe was
	Waiting   = "waiting"   // a kernel ran, and neither was
	Throttled = "throttled" // a kernel ran, and the clocks were held down
	Running   = "running"   // a kernel ran; the list has no readings of pipes
	Idle      = "idle"      // no kernel ran
	Unknown   = "unknown"   // no reading says
)

// Kinds of time in the order of tables.
var Kinds = []string{Compute, Memory, Waiting, Throttled, Running, Idle, Unknown}

// buckets of a Spread: 0, then steps of a fiftieth.
const buckets = 51

// Spread is a distribution over time of a value from 0 to 1.
type Spread struct {
	Seconds float64         `json:"seconds"` // with a known value
	Mean    float64         `json:"mean"`
	P50     float64         `json:"p50"` // within 0.01
	P95     float64         `json:"p95"`
	Max     float64         `json:"max"`
	Weights map[int]float64 `json:"weights,omitempty"` // seconds by fiftieth, so that spreads can be added
}

// maxSeconds is more than any board can work.
const maxSeconds = 1e12

// Histogram collects a Spread. The zero Histogram is empty.
type Histogram struct {
	weights [buckets]float64
	sum     float64
}

// MarshalJSON writes exactly what UnmarshalJSON reads.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	n := slices.IndexFunc(h.weights[:], func(w float64) bool { return w > 0 })
	if n < 0 {
		return []byte("null"), nil
	}
	last := len(h.weights)
	for h.weights[last-1] == 0 {
		last--
	}
	return json.Marshal(storedHistogram{n, h.weights[n:last], h.sum})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var s storedHistogram
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if s.First < 0 || s.First > buckets-len(s.Weights) {
		return fmt.Errorf("%d weights from %d on, of %d", len(s.Weights), s.First, buckets)
	}
	for _, v := range append(s.Weights, s.Sum) {
		if v < 0 || v > maxSeconds {
			return fmt.Errorf("%v seconds in a histogram", v)
		}
	}
	*h = Histogram{sum: s.Sum}
	copy(h.weights[s.First:], s.Weights)
	return nil
}

type storedHistogram struct {
	First   int       `json:"first"`
	Weights []float64 `json:"weights"`
	Sum     float64   `json:"sum"`
}

// Add counts a value for some seconds. Values above 1 are in the mean only.
func (h *Histogram) Add(v, seconds float64) {
	h.weights[int(math.Round(min(max(v, 0), 1)*(buckets-1)))] += seconds
	h.sum += v * seconds
}

// Sum returns the integral of the value over time.
func (h *Histogram) Sum() float64 { return h.sum }

// Seconds returns for how long the value is known.
func (h *Histogram) Seconds() (sum float64) {
	for _, w := range h.weights {
		sum += w
	}
	return sum
}

// Spread returns the distribution, nil if it is empty.
func (h *Histogram) Spread() *Spread {
	s := &Spread{Seconds: h.Seconds(), Weights: map[int]float64{}}
	if s.Seconds <= 0 {
		return nil
	}
	s.Mean = min(h.sum/s.Seconds, 1) // an owner of several can use more than its part
	below := 0.0
	for i, w := range h.weights {
		if w <= 0 {
			continue
		}
		v := float64(i) / (buckets - 1)
		if s.Weights[i] = w; below < s.Seconds/2 {
			s.P50 = v
		}
		if below < s.Seconds*0.95 {
			s.P95 = v
		}
		s.Max = v
		below += w
	}
	return s
}

// Restore adds a Spread. Weights that make no sense are left out.
func (h *Histogram) Restore(s *Spread) {
	if s == nil {
		return
	}
	for i, w := range s.Weights {
		if i >= 0 && i < buckets && w > 0 && !math.IsInf(w, 0) {
			h.weights[i] += w
		}
	}
	h.sum += s.Mean * s.Seconds
}

// add adds what was used of another board. Memory is added, and its peaks too: they need not be of the same moment.
func (u *Use) add(v *Use) {
	u.GPUSeconds, u.Energy, u.IdleEnergy, u.FromPower, u.XIDs = u.GPUSeconds+v.GPUSeconds, u.Energy+v.Energy, u.IdleEnergy+v.IdleEnergy, u.FromPower+v.FromPower, u.XIDs+v.XIDs
	u.Methods, u.Spent, u.Throttled = added(u.Methods, v.Methods), added(u.Spent, v.Spent), added(u.Throttled, v.Throttled)
	for _, s := range []struct{ to, from **Spread }{{&u.Busy, &v.Busy}, {&u.Tensor, &v.Tensor}, {&u.OFU, &v.OFU}} {
		var h Histogram
		h.Restore(*s.to)
		h.Restore(*s.from)
		*s.to = h.Spread()
	}
	u.Memory, u.MemorySize, u.Unused = sum(u.Memory, v.Memory), sum(u.MemorySize, v.MemorySize), least(u.Unused, v.Unused)
}

func added(a, b map[string]float64) map[string]float64 {
	if a == nil && b == nil {
		return nil
	}
	out := map[string]float64{}
	maps.Copy(out, a)
	for k, v := range b {
		out[k] += v
	}
	return out
}

func sum(a, b *float64) *float64 { return join(a, b, func(a, b float64) float64 { return a + b }) }

func least(a, b *float64) *float64 {
	return join(a, b, func(a, b float64) float64 { return min(a, b) })
}

func join(a, b *float64, f func(a, b float64) float64) *float64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(f(*a, *b))
}

// Merge puts reports of the same owner from several nodes together. It returns an error if there is none, or if they are of
// several owners.
func Merge(all []Report) (*Report, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("no node knows this owner")
	}
	out := Report{ID: all[0].ID, Owner: all[0].Owner}
	seen := map[[3]string]bool{} // two exporters of a node, or one under two addresses
	for i := range all {
		r := &all[i]
		if r.ID != out.ID {
			return nil, fmt.Errorf("reports of %s and of %s", out.ID, r.ID)
		}
		out.Nodes = append(out.Nodes, r.Nodes...)
		for _, b := range r.Boards {
			if at := [3]string{b.Node, b.GPU, b.Container}; !seen[at] {
				seen[at] = true
				out.Boards = append(out.Boards, b)
			}
		}
	}
	slices.Sort(out.Nodes)
	out.Nodes = slices.Compact(out.Nodes)
	out.Finish()
	return &out, nil
}

// Finish computes what follows from the boards.
func (r *Report) Finish() {
	slices.SortFunc(r.Boards, func(a, b Board) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(len(a.GPU), len(b.GPU)), cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.Container, b.Container))
	})
	r.Total, r.Left, r.Came = Use{}, nil, time.Time{}
	boards, running := map[[2]string]bool{}, false
	for i := range r.Boards {
		b := &r.Boards[i]
		use, at := b.Use, [2]string{b.Node, b.GPU}
		if boards[at] { // containers of a pod: the board has its memory and its XIDs once
			use.MemorySize, use.XIDs = nil, 0
		}
		boards[at] = true
		r.Total.add(&use)
		if r.Came.IsZero() || b.Came.Before(r.Came) {
			r.Came = b.Came
		}
		if running = running || b.Left == nil; b.Left != nil && (r.Left == nil || b.Left.After(*r.Left)) {
			r.Left = b.Left
		}
	}
	if running {
		r.Left = nil
	}
	r.GPUs = len(boards)
	r.Judgement = r.judge()
}

// Seconds returns how long the owner has had boards.
func (r *Report) Seconds(now time.Time) float64 {
	end := now
	if r.Left != nil {
		end = *r.Left
	}
	return end.Sub(r.Came).Seconds()
}
