package supervisor

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// A new session logs the fields that no device has, and those that it reads in addition to the list, unless the previous
// session logged the same.
func TestFieldsAreLogged(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	s := New(Wanted{}, Options{Name: "toy", Logger: zap.New(core)})
	f := func(fields int, names string, columns ...field.ID) {
		t.Helper()
		src := &view.Source{Fields: collectortest.Gauges(t, temperature), Columns: []collector.Column{{Field: 150}}, Devices: []collector.Device{{ID: "a"}}}
		for _, c := range columns {
			d, _ := field.ByID(c)
			src.Columns = append(src.Columns, collector.Column{Field: c})
			src.Fields.Hidden = append(src.Fields.Hidden, field.Reading{Desc: d})
		}
		s.logFields([]*view.Source{src})
		all := logs.TakeAll()
		if len(all) != min(fields, 1) || fields > 0 && (all[0].ContextMap()["fields"] != int64(fields) || all[0].ContextMap()["field"] != names) {
			t.Errorf("the log is %v, want one line about %d fields: %s", all, fields, names)
		}
	}
	f(1, "DCGM_FI_DEV_GPU_UTIL", 203)
	f(0, "", 203)
	f(13, "DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_MEM_CLOCK, DCGM_FI_DEV_VIDEO_CLOCK, DCGM_FI_DEV_APP_SM_CLOCK, DCGM_FI_DEV_APP_MEM_CLOCK, "+
		"DCGM_FI_DEV_MEMORY_TEMP, DCGM_FI_DEV_POWER_USAGE, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, DCGM_FI_DEV_FAN_SPEED, DCGM_FI_DEV_GPU_UTIL, "+
		"DCGM_FI_DEV_MEM_COPY_UTIL, DCGM_FI_DEV_ENC_UTIL and 1 more", 100, 101, 102, 110, 111, 140, 155, 156, 191, 203, 204, 206, 207)
	for range 2 {
		s.logFields([]*view.Source{{
			Fields:  collectortest.Gauges(t, temperature, "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_FAN_SPEED"),
			Columns: []collector.Column{{Field: 150}}, Devices: []collector.Device{{ID: "a", Facts: []collector.Label{{Name: "DCGM_FI_DEV_SERIAL", Value: "1"}}}},
		}})
	}
	all := logs.TakeAll()
	testkit.ErrorIf(t, len(all) != 1 || all[0].ContextMap()["field"] != "DCGM_FI_DEV_FAN_SPEED", "the log is %v, want one line about the fan's speed", all)
}

// A child that has ended says nothing about its devices: they are up until their samples are old.
func TestDevicesAfterAChild(t *testing.T) {
	f := func(cause session.Cause, age, interval time.Duration, want session.State) {
		t.Helper()
		feed := viewtest.Simple(list(1), []collector.Device{{ID: "a"}}, []collector.Column{{Field: 60000}})
		feed.Source.Interval = interval
		feed.Tick(time.Now().Add(-age))
		s := &state{sources: []*view.Source{feed.Source}, cause: cause, reason: "why"}
		if all := s.devices(time.Minute); len(all) != 1 || all[0].State != want || (all[0].Reason == "why") != (want == session.Stalled) {
			t.Errorf("%v, %v after the last sample: %+v, want %v", cause, age, all, want)
		}
	}
	f(session.CauseChild, time.Second, time.Second, session.Up)
	f(session.CauseChild, 2*time.Minute, time.Second, session.Stalled)
	f(session.CauseChild, 2*time.Minute, time.Hour, session.Up)
	f(session.CauseError, time.Second, time.Second, session.Stalled)
}
