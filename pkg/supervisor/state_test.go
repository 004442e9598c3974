package supervisor

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// TestAbsentFieldsAreLogged: a new session logs the fields that no device has, unless the previous session logged the same.
func TestAbsentFieldsAreLogged(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	s := New(Wanted{}, Options{Name: "toy", Logger: zap.New(core)})
	serial := fieldsOf(t, "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_UUID")
	source := func(list field.List, columns ...field.ID) *view.Source {
		src := &view.Source{Fields: list, Devices: []collector.Device{{ID: "a", Facts: []collector.Label{{Name: "DCGM_FI_DEV_UUID", Value: "a"}}}}}
		for _, c := range columns {
			src.Columns = append(src.Columns, collector.Column{Field: c})
		}
		return src
	}
	f := func(what string, fields int, names string, sources ...*view.Source) {
		t.Helper()
		s.logFields(sources)
		all := logs.TakeAll()
		if fields == 0 && len(all) == 0 {
			return
		}
		if len(all) != 1 || all[0].ContextMap()["fields"] != int64(fields) || all[0].ContextMap()["field"] != names {
			t.Errorf("%s: the log is %v, want one line about %d fields: %s", what, all, fields, names)
		}
	}
	some := fieldsOf(t, temperature, "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_SM_CLOCK")
	some.Fields = append(some.Fields, serial.Fields...)
	const absent = "DCGM_FI_DEV_FAN_SPEED, DCGM_FI_DEV_SERIAL"
	f("a session", 2, absent, source(some, 150), source(some, 150, 100))
	f("the same again", 0, "", source(some, 150, 100))
	f("another set", 3, "DCGM_FI_DEV_FAN_SPEED, DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_SERIAL", source(some, 150))
	health := some
	health.Hidden = []field.Reading{{Desc: fieldsOf(t, "DCGM_FI_DEV_GPU_UTIL").Fields[0].Desc}}
	f("a field in addition", 1, "DCGM_FI_DEV_GPU_UTIL", source(health, 150, 203))
	f("the same again", 0, "", source(health, 150, 203))
	many := list(maxNames + 1)
	f("many", maxNames+1, "F0, F1, F2, F3, F4, F5, F6, F7, F8, F9, F10, F11 and 1 more", source(many))
}
