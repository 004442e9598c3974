package isolation

import (
	"testing"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/sampler"
)

func TestStandbyEndsTheChildUntilItIsOver(t *testing.T) {
	v := supervise(t, "counting", Options{})
	v.awaitService(t)
	pid := v.state.Load().pid
	if err := v.Standby(t.Context(), "counting", true); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("child %d is still there", pid)
	}
	if st := v.status(); st.Up || st.Cause != sampler.CauseStandby || len(st.Devices) != 0 {
		t.Errorf("status %+v, want a standby without devices: another has them", st)
	}
	if err := v.Release(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if err := v.Standby(t.Context(), "", false); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the release to be told", func() bool { return v.status().Cause == sampler.CauseReleased })
	if p := v.state.Load().pid; p != 0 {
		t.Errorf("child %d while released", p)
	}
	if err := v.Resume(""); err != nil {
		t.Fatal(err)
	}
	v.awaitService(t)
	if err := v.Standby(t.Context(), "other", true); err == nil {
		t.Error("no error for a collector that there is not")
	}
}
