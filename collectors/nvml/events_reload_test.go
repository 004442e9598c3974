//go:build linux && cgo

package nvml

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// ringed is a source of XIDs with its ring, as the sampler has it.
type ringed struct {
	part *eventsPart
	view *view.Source
	row  []float64
	due  []bool
}

func newRinged(b *boards, s *scriptedEvents) *ringed {
	p := newEventsPart(b, b.join(testUUID, s.open, nil, zap.NewNop()), 1, placement{}, readings(field.XIDEvent), zap.NewNop())
	total, _ := field.ByID(field.XIDErrorsTotal)
	n := len(p.columns())
	return &ringed{part: p, row: make([]float64, n), due: slices.Repeat([]bool{true}, n), view: &view.Source{
		Collector: "nvml", Devices: []collector.Device{{ID: testUUID}}, Columns: p.columns(), Ring: ring.Make(64, 1, n),
		Fields: field.List{Fields: []field.Field{{Desc: total, Name: total.Name, Type: field.Counter, Scale: 1}}},
	}}
}

func (r *ringed) tick(t *testing.T) {
	for i := range r.row {
		r.row[i] = math.NaN()
	}
	if err := r.part.sample(r.row, r.due); err != nil {
		t.Error(err)
	}
	now := time.Now().UnixNano()
	r.view.Ring.Append(now, []int64{now}, r.row)
}

// reload is what the sampler does (binding.takeOver): the new source samples
// beside the old until it takes over, the old ends, the new samples once more,
// and the View changes.
type reload struct {
	*rand.Rand
	store  *accumulate.Store
	board  view.Board
	events *scriptedEvents
	next   uint64 // code of the next XID; each occurs once
}

// live lets time pass, with ticks of the sources, XIDs and scrapes in between.
func (w *reload) live(t *testing.T, steps int, sources ...*ringed) {
	for range steps {
		switch w.IntN(8) {
		case 0, 1:
			w.events.xid(w.next, noInstance, noInstance)
			w.next++
		case 2:
			w.store.Sync(w.board.Load(), time.Now())
		case 3, 4, 5, 6:
			sources[w.IntN(len(sources))].tick(t)
		}
		time.Sleep(time.Duration(w.IntN(600)) * time.Millisecond)
		synctest.Wait()
	}
}

// TestXIDsOfReloads: however XIDs, ticks, scrapes and reloads fall, each XID is
// counted once.
func TestXIDsOfReloads(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			var b boards
			w := &reload{Rand: rand.New(rand.NewPCG(seed, 4)), store: accumulate.New(accumulate.Options{}), events: &scriptedEvents{}, next: 200}
			current := newRinged(&b, w.events)
			version := uint64(1)
			w.board.Store(&view.View{Version: version, Sources: []*view.Source{current.view}})
			for range 4 {
				w.live(t, 6, current)
				w.store.Sync(w.board.Load(), time.Now()) // the exporter does every few seconds
				w.live(t, 6, current)
				heir := newRinged(&b, w.events)
				heir.tick(t)
				w.live(t, w.IntN(8), current, heir)
				heir.tick(t) // once the old has ended
				version++
				w.board.Store(&view.View{Version: version, Sources: []*view.Source{heir.view}})
				current.part.close()
				current = heir
			}
			heard()
			for range logSize / slotsOfBoard {
				current.tick(t)
				w.store.Sync(w.board.Load(), time.Now())
			}
			current.part.close()
			counts := map[string]float64{}
			for _, s := range w.store.Series() {
				for _, l := range s.Labels {
					if l.Name == "xid" && *s.Value > 0 {
						counts[l.Value] += *s.Value
					}
				}
			}
			if n := int(w.next - 200); len(counts) != n {
				t.Errorf("seed %d: %d XIDs occurred, %d are counted: %v", seed, n, len(counts), counts)
			}
			for code, n := range counts {
				if n != 1 {
					t.Errorf("seed %d: XID %s occurred once and is counted %v times", seed, code, n)
				}
			}
		})
	}
}
