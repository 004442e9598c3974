package sampler

import (
	"testing"
	"testing/synctest"
	"time"
)

// A standby and a release are two reasons to rest; each ends on its own.
func TestStandbyAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		f := func(step string, err error, cause Cause, live, devices int) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			st := s.Status()[0]
			if _, open := n.counts(); st.Cause != cause || open != live || len(st.Devices) != devices {
				t.Errorf("after %s: cause %q, %d open, %d devices, want %q, %d, %d", step, st.Cause, open, len(st.Devices), cause, live, devices)
			}
		}
		f("standby", s.Standby(t.Context(), "scripted", true), CauseStandby, 0, 0) // another tells of the devices
		f("release", s.Release(t.Context(), ""), CauseReleased, 0, 2)
		f("resume", s.Resume(""), CauseStandby, 0, 0)
		f("release again", s.Release(t.Context(), ""), CauseReleased, 0, 2)
		f("end of standby", s.Standby(t.Context(), "", false), CauseReleased, 0, 2)
		f("resume for good", s.Resume("scripted"), CauseNone, 1, 2)
		if err := s.Standby(t.Context(), "other", true); err == nil {
			t.Error("no error for a collector that there is not")
		}
	})
}
