package supervisor

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Each session says once which fields no device has, unless the one before has said so,
// and at level debug why.
func TestBoundFieldsAreLogged(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	s := New(Wanted{}, Options{Name: "toy", Logger: zap.New(core)})
	var list field.List
	for _, f := range []struct {
		name string
		typ  field.Type
	}{{"DCGM_FI_DEV_GPU_TEMP", field.Gauge}, {"DCGM_FI_DEV_FAN_SPEED", field.Gauge}, {"DCGM_FI_DEV_SERIAL", field.Label}, {"DCGM_FI_DEV_UUID", field.Label}, {"DCGM_FI_DEV_SM_CLOCK", field.Gauge}} {
		d, _, ok := field.ByName(f.name)
		if !ok {
			t.Fatalf("no field %s", f.name)
		}
		list.Fields = append(list.Fields, field.Field{Desc: d, Name: f.name, Type: f.typ, Scale: 1})
	}
	source := func(id string, columns ...field.ID) *view.Source {
		src := &view.Source{
			Fields: list, Devices: []collector.Device{{ID: id, Facts: []collector.Label{{Name: "DCGM_FI_DEV_UUID", Value: id}}}},
			Explanations: []collector.Explanation{{Reason: collector.ReasonUnsupported, Detail: "no fan"}, {Reason: collector.ReasonNoSymbol, Detail: "old driver"}},
			Absent:       []collector.Absence{{Field: 191}, {Field: 100, Explanation: 1}},
		}
		for _, c := range columns {
			src.Columns = append(src.Columns, collector.Column{Field: c})
		}
		return src
	}
	lines := func(level zapcore.Level) (out []map[string]any) {
		for _, e := range logs.FilterLevelExact(level).All() {
			out = append(out, e.ContextMap())
		}
		return out
	}
	summary := []map[string]any{{"collector": "toy", "fields": int64(2), "field": "DCGM_FI_DEV_FAN_SPEED, DCGM_FI_DEV_SERIAL"}}

	s.bound.logBound(s.log, []*view.Source{source("a", 150), source("b", 150, 100)})
	if diff := cmp.Diff(summary, lines(zapcore.InfoLevel)); diff != "" {
		t.Errorf("at level info (-want +got):\n%s", diff)
	}
	details := []map[string]any{
		{"collector": "toy", "reason": "no_symbol", "detail": "old driver", "field": "DCGM_FI_DEV_SM_CLOCK", "devices": "a, b"},
		{"collector": "toy", "reason": "unsupported", "detail": "no fan", "field": "DCGM_FI_DEV_FAN_SPEED", "devices": "a, b"},
	}
	got := slices.DeleteFunc(lines(zapcore.DebugLevel), func(m map[string]any) bool { return m["columns"] != nil })
	if diff := cmp.Diff(details, got); diff != "" {
		t.Errorf("at level debug (-want +got):\n%s", diff)
	}
	if n := len(lines(zapcore.DebugLevel)); n != 4 {
		t.Errorf("%d lines at level debug, want 2 of reasons and 2 of sources", n)
	}

	logs.TakeAll()
	s.bound.logBound(s.log, []*view.Source{source("a", 150, 100)})
	if got := lines(zapcore.InfoLevel); len(got) != 0 {
		t.Errorf("the same again is logged: %v", got)
	}
	s.bound.logBound(s.log, []*view.Source{source("a", 150)})
	if got := lines(zapcore.InfoLevel); len(got) != 1 || got[0]["fields"] != int64(3) {
		t.Errorf("of another set is logged: %v", got)
	}
}

func TestSomeNames(t *testing.T) {
	names := []string{"a", "b", "c"}
	if a, b := some(names, 3), some(names, 2); a != "a, b, c" || b != "a, b and 1 more" {
		t.Errorf("got %q and %q", a, b)
	}
}
