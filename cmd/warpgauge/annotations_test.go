package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// TestAnnotationsOfLists: the list in service, and what was wrong with a later one of a file or a server.
func TestAnnotationsOfLists(t *testing.T) {
	now := time.Date(2026, 5, 1, 18, 0, 0, 0, time.UTC)
	in := &config.Content{Name: "counters.csv"}
	r := newReloader(in, field.List{}, zap.NewNop(), now)
	want := map[string]string{
		"warpgauge/list-hash": in.Hash(), "warpgauge/list-origin": "counters.csv", "warpgauge/list-applied": "2026-05-01T18:00:00Z", "warpgauge/list-error": "",
	}
	check := func(problem string) {
		t.Helper()
		want["warpgauge/list-error"] = problem
		if diff := cmp.Diff(want, r.annotations()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check("")
	_ = r.failed(zap.NewNop(), "not reloaded", errNothingAsked)
	check(errNothingAsked.Error())
	answer := &apiv1.RemoteList{Status: remote.StateRefused, Text: "line 3: no such field"}
	r.remote = func() *apiv1.RemoteList { return answer }
	check("line 3: no such field")
	answer = &apiv1.RemoteList{Status: remote.StateApplied, Text: "it is in service"}
	check(errNothingAsked.Error())

	if _, err := annotationStage(&app{environ: []string{"POD_NAME=exporter-x"}}, r, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "POD_NAMESPACE") {
		t.Errorf("without the pod's name: %v", err)
	}
}
