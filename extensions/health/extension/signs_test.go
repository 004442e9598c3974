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

// TestSimulatedNodesAreWell runs each simulated node for two hours under load with the recommended list, including a
// release, reloads and application XIDs. No verdict except ok and no sign may appear, apart from the XID 94 that one GPU
// of each node reports on purpose.
func TestSimulatedNodesAreWell(t *testing.T) {
	csv, err := etc.Files().ReadFile("recommended-counters.csv")
	must(t, err)
	profiles := fake.Profiles()
	if testkit.Race { // the nodes differ in values only
		profiles = profiles[:1]
	}
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newJudgedNode(t, profile, string(csv), "--collect-interval=5000")
				time.Sleep(30 * time.Second)
				for minute := range 120 {
					time.Sleep(time.Minute)
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
						if v.Reason != "xid_94" && v.State != events.OK || len(v.Conditions) > 1 {
							t.Fatalf("%s: %v %q with %+v", v.Device.ID, v.State, v.Reason, v.Conditions)
						}
					}
				}
			})
		})
	}
}
