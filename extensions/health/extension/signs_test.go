package extension

import (
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"
)

// TestEarlySigns: a bank without spare rows is read, seen and judged although the list does not
// have the reading.
func TestEarlySigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newJudgedNode(t, nvidiaNode, "DCGM_FI_DEV_SM_CLOCK, gauge, c\n")
		time.Sleep(5 * time.Second)
		none, _ := field.ByID(389)
		heal := n.inject(fake.Fault{Kind: fake.Absurd, Field: none, Value: 2})
		time.Sleep(3 * time.Minute)
		if v := n.verdict(field.GPU, "1"); v.State != verdict.Degraded || v.Reason != "spare_rows_low" || v.Conditions[0].Evidence[0].Text != "2 memory banks without a spare row" {
			t.Errorf("the verdict is %v %q with %+v", v.State, v.Reason, v.Conditions)
		}
		if v := n.verdict(field.GPU, "0"); v.State != verdict.OK {
			t.Errorf("the other GPU is %v %q", v.State, v.Reason)
		}
		heal()
		time.Sleep(12 * time.Minute)
		if v := n.verdict(field.GPU, "1"); v.State != verdict.OK {
			t.Errorf("after the fault the verdict is %v %q", v.State, v.Reason)
		}
	})
}

// TestSimulatedNodesAreWell: an hour of each simulated node under load, with all that the
// recommended list reads, has no verdict other than ok and no sign, except that one GPU of each
// has an XID 94 now and then, on purpose.
func TestSimulatedNodesAreWell(t *testing.T) {
	csv, err := etc.Files().ReadFile("recommended-counters.csv")
	must(t, err)
	for _, profile := range fake.Profiles() {
		t.Run(profile, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newJudgedNode(t, profile, string(csv), "--collect-interval=5000")
				time.Sleep(30 * time.Second)
				for range 60 {
					time.Sleep(time.Minute)
					for _, v := range n.watch.Board().Load().Verdicts {
						if v.Reason != "xid_94" && v.State != verdict.OK || len(v.Conditions) > 1 {
							t.Fatalf("%s: %v %q with %+v", v.Device.ID, v.State, v.Reason, v.Conditions)
						}
					}
				}
			})
		})
	}
}
