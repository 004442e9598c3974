//go:build !race

// These tests have one goroutine each: the race detector would find nothing, and take a minute.

package signs

import (
	"fmt"
	"testing"
	"time"

	"warpgauge/extensions/health"
)

// TestHealthyNoise: 24 hours of six nodes without a fault, with all that happens on healthy ones,
// have no verdict other than ok. While an operator has released the collector it is unknown,
// because of that, and until a new process has the first values.
func TestHealthyNoise(t *testing.T) {
	for i, c := range []struct {
		name  string
		kind  kind
		shape func(*gpu, time.Duration) float64
		pods  bool // come and go
	}{
		{"H100, training", h100, training, true},
		{"H100, mixed owners", h100, mixed, true},
		{"H100, idle", h100, func(*gpu, time.Duration) float64 { return 0 }, false},
		{"A100 with MIG, inference", a100, inference, true},
		{"GeForce", geForce, inference, false},
		{"MI300X, training", mi300x, training, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newRig(c.kind, uint64(i)+1)
			j.shape = c.shape
			for _, g := range j.gpus[:2] {
				g.hot = true // throttled for eight minutes of each hour
			}
			for hour := range 24 {
				if c.pods {
					j.use(fmt.Sprintf("job-%d", hour/6), 0, 1, 2, 3)
					j.use(fmt.Sprintf("job-%d", hour), 4, 5)
				}
				switch hour {
				case 3, 9: // another list
					j.close(false)
					j.open()
				case 6, 15: // a driver upgrade; a diagnosis
					j.release(hour == 6)
					j.run(6 * time.Minute)
					j.resume()
					j.started = j.node.now
				case 8, 16: // other instances
					j.close(false)
					j.divide(hour / 8 % 2)
					j.open()
				case 5, 14: // another version of the exporter
					j.restart()
				}
				// Of applications, and of a row that was remapped.
				for _, xid := range []int{13, 31, 43, 45, 63} {
					g := j.gpus[j.rand.IntN(len(j.gpus))]
					j.watch.Observe(health.Observation{Reason: "xid", Code: xid, Device: g.ID, PCIBusID: g.PCIBusID, Time: j.node.now, Source: "kernel log"})
				}
				if j.run(time.Hour); len(j.wrong) > 0 {
					t.Fatal(j.wrong)
				}
			}
			for _, g := range j.gpus {
				if c.kind.ecc && g.sbe == 0 && g.replay == 0 {
					t.Errorf("nothing happened on %s", g.ID)
				}
			}
		})
	}
}
