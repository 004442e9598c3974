package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestPauseAndResumeProfiling(t *testing.T) {
	var got string
	answer := error(nil)
	full := New(nil, Options{
		PauseProfiling: func(ctx context.Context, limit time.Duration) error {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("a pause has no end")
			}
			got = fmt.Sprintf("pause for %v", limit)
			return answer
		},
		ResumeProfiling: func(context.Context) error {
			got = "resume"
			return answer
		},
	})
	plain := New(nil, Options{})
	f := func(s *Server, method, path string, code int, body, call string, headers ...string) {
		t.Helper()
		got = ""
		w := ask(s, method, path, headers...)
		if w.Code != code || w.Body.String() != body || got != call {
			t.Errorf("%s %s = %d %q and called %q, want %d %q, %q", method, path, w.Code, w.Body, got, code, body, call)
		}
	}
	f(full, "POST", "/-/profiling/pause", 200, "paused\n", "pause for 0s")
	f(full, "PUT", "/-/profiling/pause?for=90s", 200, "paused\n", "pause for 1m30s")
	f(full, "POST", "/-/profiling/pause?for=0", 200, "paused\n", "pause for -1ns")
	f(full, "POST", "/-/profiling/resume", 200, "resumed\n", "resume")

	f(full, "GET", "/-/profiling/pause", 405, "Method Not Allowed\n", "")
	f(full, "GET", "/-/profiling/resume", 405, "Method Not Allowed\n", "")
	f(plain, "POST", "/-/profiling/pause", 403, "pausing profiling over HTTP is not enabled\n", "")
	f(plain, "POST", "/-/profiling/resume", 403, "pausing profiling over HTTP is not enabled\n", "")
	f(full, "POST", "/-/profiling/pause", 403, "cross-origin request detected from Sec-Fetch-Site header\n", "", "Sec-Fetch-Site", "cross-site")
	f(full, "POST", "/-/profiling/pause?fro=1s", 400, "pause: unknown parameter fro\n", "")
	f(full, "POST", "/-/profiling/pause?for=10", 400, "pause: for is 10: write a duration such as 90s or 10m, or 0 for until it is resumed\n", "")
	f(full, "POST", "/-/profiling/resume?for=1s", 400, "resume: unknown parameter for\n", "")

	answer = errors.New("collector dcgm cannot be opened again")
	f(full, "POST", "/-/profiling/pause", 500, "pause: collector dcgm cannot be opened again\n", "pause for 0s")
	f(full, "POST", "/-/profiling/resume", 500, "resume: collector dcgm cannot be opened again\n", "resume")
}

func TestLongProfilesAreRefused(t *testing.T) {
	s := New(nil, Options{Pprof: true})
	for _, path := range []string{"profile", "trace", "heap", "goroutine"} {
		for _, seconds := range []string{"61", "-1", "1e9", "NaN", "x"} {
			if w := ask(s, "GET", "/debug/pprof/"+path+"?seconds="+seconds); w.Code != 400 {
				t.Errorf("%s of %s s = %d, want 400", path, seconds, w.Code)
			}
		}
	}
	if w := ask(s, "GET", "/debug/pprof/goroutine?debug=1"); w.Code != 200 {
		t.Errorf("goroutines = %d, want 200", w.Code)
	}
}
