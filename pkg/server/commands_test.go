package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"
)

type waiting struct{ error }

func (waiting) Waiting() {}

func TestCommands(t *testing.T) {
	var got string
	var answer error
	desk := func(ctx context.Context, call string) error {
		limit := reloadTimeout
		if strings.HasPrefix(call, "release") {
			limit = releaseTimeout
		}
		if deadline, ok := ctx.Deadline(); !strings.HasPrefix(call, "resume \"") && (!ok || time.Until(deadline) > limit) {
			t.Errorf("%s: the context ends in %v", call, time.Until(deadline))
		}
		got = call
		return answer
	}
	record := func(run func(context.Context) error) []Route {
		return []Route{{Pattern: "/-/record", Command: &Command{Verb: "record", Done: "recording", Disabled: "recording over HTTP is not enabled", Run: run}}}
	}
	o := withDesk(desk)
	o.Routes = record(func(ctx context.Context) error { return desk(ctx, "record") })
	full, plain := New(nil, o), New(nil, Options{Routes: record(nil)})
	f := func(s *Server, method, path string, code int, body, call string, headers ...string) {
		t.Helper()
		got = ""
		w := ask(s, method, path, headers...)
		if _, rest, ok := strings.Cut(call, " by "); ok && rest == "" {
			call += "POST " + strings.SplitN(path, "?", 2)[0]
		}
		if w.Code != code || w.Body.String() != body+"\n" || got != call {
			t.Errorf("%s %s = %d %q and called %q, want %d %q, %q", method, path, w.Code, w.Body, got, code, body, call)
		}
	}
	f(full, "POST", "/-/reload", 200, "reloaded", "reload by ")
	f(full, "PUT", "/-/reload", 200, "reloaded", "reload by ")
	f(full, "POST", "/-/release", 200, "released", `release "" for 0s by `)
	f(full, "PUT", "/-/release?collector=nvml&for=90s", 200, "released", `release "nvml" for 1m30s by `)
	f(full, "POST", "/-/release?for=0", 200, "released", `release "" for -1ns by `)
	f(full, "POST", "/-/resume", 200, "resumed", `resume "" by `)
	f(full, "POST", "/-/resume?collector=nvml", 200, "resumed", `resume "nvml" by `)
	f(full, "POST", "/-/profiling/pause", 200, "paused", "pause for 0s by ")
	f(full, "PUT", "/-/profiling/pause?for=90s", 200, "paused", "pause for 1m30s by ")
	f(full, "POST", "/-/profiling/pause?for=0", 200, "paused", "pause for -1ns by ")
	f(full, "POST", "/-/profiling/resume", 200, "resumed", "resume profiling by ")
	f(full, "POST", "/-/record", 200, "recording", "record")

	for path, disabled := range map[string]string{
		"/-/reload": "reload over HTTP", "/-/release": "release over HTTP", "/-/resume": "release over HTTP", "/-/record": "recording over HTTP",
		"/-/profiling/pause": "pausing profiling over HTTP", "/-/profiling/resume": "pausing profiling over HTTP",
	} {
		f(full, "GET", path, 405, "Method Not Allowed", "")
		f(plain, "GET", path, 405, "Method Not Allowed", "")
		f(plain, "POST", path, 403, disabled+" is not enabled", "")
		f(full, "POST", path, 403, "cross-origin request detected from Sec-Fetch-Site header", "", "Sec-Fetch-Site", "cross-site")
	}

	// A typo must not release everything, or for ever.
	const advice = ": write a duration such as 90s or 10m, at most 2562047h, or 0 for until it is resumed"
	f(full, "POST", "/-/release?colector=nvml", 400, "release: unknown parameter colector", "")
	f(full, "POST", "/-/release?collector=", 400, "release: give collector one value", "")
	f(full, "POST", "/-/release?for=1s&for=2s", 400, "release: give for one value", "")
	f(full, "POST", "/-/release?for=99999999h", 400, "release: for is 99999999h"+advice, "")
	f(full, "POST", "/-/release?for=-1s", 400, "release: for is -1s"+advice, "")
	f(full, "POST", "/-/release?a;b", 400, "release: invalid semicolon separator in query", "")
	f(full, "POST", "/-/resume?for=1s", 400, "resume: unknown parameter for", "")
	f(full, "POST", "/-/profiling/pause?fro=1s", 400, "pause: unknown parameter fro", "")
	f(full, "POST", "/-/profiling/resume?for=1s", 400, "resume: unknown parameter for", "")
	f(full, "POST", "/-/record?for=1s", 400, "record: unknown parameter for", "")

	answer = fmt.Errorf("no collector \"x\": %w", fs.ErrNotExist)
	f(full, "POST", "/-/release?collector=x", 404, "release: no collector \"x\": file does not exist", `release "x" for 0s by `)
	f(full, "POST", "/-/resume?collector=x", 404, "resume: no collector \"x\": file does not exist", `resume "x" by `)
	answer = waiting{errors.New("good, and waits")}
	f(full, "POST", "/-/reload", 202, "reload: good, and waits", "reload by ")
	answer = errors.New("child 7 has not ended")
	f(full, "POST", "/-/reload", 500, "reload: child 7 has not ended", "reload by ")
	f(full, "POST", "/-/release", 500, "release: child 7 has not ended", `release "" for 0s by `)
	f(full, "POST", "/-/profiling/pause", 500, "pause: child 7 has not ended", "pause for 0s by ")
	f(full, "POST", "/-/profiling/resume", 500, "resume: child 7 has not ended", "resume profiling by ")
}
