package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"warpgauge/pkg/api"
	"warpgauge/pkg/field"
	"warpgauge/pkg/recorder"
)

// replayed answers a path of a replay into out.
func replayed(t *testing.T, r *recorder.Recording, path string, out any) {
	t.Helper()
	r.From = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.Until = r.From.Add(time.Minute)
	p := newReplay(r, "v1")
	p.seek(0)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, api.Prefix+path, nil))
	if err := json.Unmarshal(w.Body.Bytes(), out); err != nil || w.Code != http.StatusOK {
		t.Errorf("%s: %d, %v: %s", path, w.Code, err, w.Body)
	}
}

// TestReplayWithoutDevices: an operator can record a node whose GPUs have all gone.
func TestReplayWithoutDevices(t *testing.T) {
	for _, path := range []string{"devices", "fields", "health", "list", "events"} {
		var answer map[string]any
		replayed(t, &recorder.Recording{}, path, &answer)
	}
}

// TestReplayOfAReload: fields of the list before and of the one after it are there.
func TestReplayOfAReload(t *testing.T) {
	before, _ := field.ByID(150)
	after, _ := field.ByID(155)
	list := func(d ...*field.Descriptor) (l field.List) {
		for _, d := range d {
			l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
		}
		return l
	}
	var got api.List
	replayed(t, &recorder.Recording{Fields: []field.List{list(before), list(before, after)}}, "list", &got)
	if len(got.Fields) != 2 || got.Fields[1].Name != after.Name {
		t.Errorf("fields %v", got.Fields)
	}
}
