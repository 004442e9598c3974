package extension

import (
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/extensions/health"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// TestSimulatedNodesAreWell runs each simulated node for two hours, a DGX H100 for a day, seven GPUs under load and one idle, with the
// recommended list, a release, reloads and application XIDs. No verdict except ok and no sign may appear.
func TestSimulatedNodesAreWell(t *testing.T) {
	csv := testkit.Get(etc.Files().ReadFile("recommended-counters.csv"))(t)
	profiles := fake.Profiles()
	ecc, _ := field.ByID(field.CorrectedErrors)
	links, _ := field.ByID(field.NVLinksReplays)
	if testkit.Race { // the nodes differ in values only
		profiles = profiles[:1]
	}
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				minutes, heal, tick := 120, func() {}, "5000"
				if profile == nvidiaNode && !testkit.Race {
					minutes, tick = 24*60, "60000"
				}
				n := newFaultyNode(t, fake.Options{Profile: profile, Devices: 8}, string(csv), "--collect-interval="+tick)
				time.Sleep(30 * time.Second)
				for minute := range minutes {
					time.Sleep(time.Minute)
					if profile == nvidiaNode && minute%15 == 0 { // weak cells: 10,080 corrected errors a day; each hour 50 of the 60 replays that a link may have, at once
						heal()
						cells := n.inject(fake.Fault{Kind: fake.Absurd, Field: ecc, Value: float64(7 * minute)})
						replays := n.inject(fake.Fault{Kind: fake.Absurd, Field: links, Value: float64(50 * (minute / 60))})
						heal = func() { cells(); replays() }
					}
					switch minute {
					case 40: // a diagnostic run
						must(t, n.Engine.Release(t.Context(), ""))
						time.Sleep(6 * time.Minute)
						n.Engine.Resume("")
						time.Sleep(time.Minute)
					case 60, 80:
						must(t, n.Engine.Reload(t.Context(), n.Core().Lists.Status().InService.Fields))
						time.Sleep(time.Minute)
					}
					for _, xid := range []int{13, 31, 43, 45, 63} { // application errors, and a row remapping
						n.watch.Observe(health.Observation{Reason: "xid", Code: xid, Device: n.verdict(field.GPU, "0").Device.ID, Source: "kernel log"})
					}
					for _, v := range n.watch.Board().Load().Verdicts {
						if v.State != events.OK || len(v.Conditions) > 0 {
							t.Fatalf("%s: %v %q with %+v", v.Device.ID, v.State, v.Reason, v.Conditions)
						}
					}
				}
			})
		})
	}
}
