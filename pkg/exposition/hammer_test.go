package exposition

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// TestHammer scrapes from 16 clients while rows, views, owners and our own part change. Some clients hold their pages
// for long. In each row all cells have one value, so on each page all series of a source must have one value.
func TestHammer(t *testing.T) {
	const scrapes = 150
	owners := &hammerOwners{}
	self := &hammerSelf{}
	board := &view.Board{}
	all := []*feed{gpus(2, 5), gpus(3, 4)}
	for i := range all[1].Devices { // other devices
		all[1].Devices[i].ID += "/other"
		all[1].Devices[i].UUID += "/other"
	}
	board.Store(viewtest.View(1, all...))
	r := New(board, Options{Owners: owners, Self: self})
	tick := func(n int) {
		for _, f := range all {
			for i := range f.Row {
				f.Row[i] = float64(n)
			}
			f.Tick(time.Now())
		}
	}
	tick(0)

	var clients sync.WaitGroup
	var ended atomic.Bool
	for c := range 16 {
		clients.Go(func() {
			format := []Format{Text, OpenMetrics, Protobuf}[c%3]
			compressed := c%4 == 0
			var held [][]byte
			for n := range scrapes {
				p := r.Page(format, compressed)
				before := string(p)
				held = append(held, p)
				if len(held) > c%5 { // a slow client: reads on when others are far ahead
					text := before
					if compressed {
						text = gunzip(t, p)
					}
					if n%10 == 0 {
						checkHammered(t, text, format)
					}
					held = held[:0]
				}
				testkit.ErrorIf(t, len(held) > 0 && string(p) != before, "a page changed while it was held")
			}
		})
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 1; !ended.Load(); n++ {
			tick(n)
			switch n % 16 {
			case 3:
				owners.version.Add(1)
			case 7:
				self.version.Add(1)
			case 11:
				board.Store(viewtest.View(uint64(n), all[n/16%2], all[1-n/16%2]))
			case 15:
				r.Sync(time.Now())
			}
		}
	})
	clients.Wait()
	ended.Store(true)
	writer.Wait()
}

// checkHammered reports series of one device with different values.
func checkHammered(t *testing.T, page string, f Format) {
	t.Helper()
	bySource := map[bool]float64{}
	values := parse(t, page, f).Values
	for series, v := range values {
		other := strings.Contains(series, "/other")
		if first, seen := bySource[other]; seen && first != v {
			t.Errorf("%v: values %v and %v of one row", f, first, v)
			return
		}
		bySource[other] = v
	}
	testkit.Equal(t, fmt.Sprintf("%v: sources of series", f), 2, len(bySource))
}

type hammerOwners struct{ version atomic.Uint64 }

func (o *hammerOwners) Version() uint64 { return o.version.Load() }
func (o *hammerOwners) Owners(*collector.Device) []view.Owner {
	return []view.Owner{ownerOf("pod", fmt.Sprint(o.version.Load()))}
}
func (o *hammerOwners) Split(*collector.Device, field.ID) bool { return false }
func (o *hammerOwners) Shares() *view.Shares                   { return nil }

type hammerSelf struct{ version atomic.Uint64 }

func (s *hammerSelf) Version() uint64     { return s.version.Load() }
func (s *hammerSelf) Text() []byte        { return nil }
func (s *hammerSelf) OpenMetrics() []byte { return nil }
func (s *hammerSelf) Protobuf() []byte    { return nil }
