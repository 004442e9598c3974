package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"warpgauge/pkg/lists"
)

func TestReleaseAndResume(t *testing.T) {
	var got string
	answer := error(nil)
	full := New(nil, Options{
		Release: func(ctx context.Context, name string, limit time.Duration) error {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > releaseTimeout {
				t.Errorf("the context ends in %v", time.Until(deadline))
			}
			got = fmt.Sprintf("release %q for %v", name, limit)
			return answer
		},
		Resume: func(name string) error {
			got = fmt.Sprintf("resume %q", name)
			return answer
		},
		Routes: record(func(context.Context) error {
			got = "record"
			return answer
		}),
	})
	plain := New(nil, Options{Routes: record(nil)})
	f := func(s *Server, method, path string, code int, body, call string, headers ...string) {
		t.Helper()
		got = ""
		w := ask(s, method, path, headers...)
		if w.Code != code || w.Body.String() != body {
			t.Errorf("%s %s = %d %q, want %d %q", method, path, w.Code, w.Body, code, body)
		}
		if got != call {
			t.Errorf("%s %s called %q, want %q", method, path, got, call)
		}
	}
	f(full, "POST", "/-/release", 200, "released\n", `release "" for 0s`)
	f(full, "PUT", "/-/release?collector=nvml&for=90s", 200, "released\n", `release "nvml" for 1m30s`)
	f(full, "POST", "/-/release?for=0", 200, "released\n", `release "" for -1ns`)
	f(full, "POST", "/-/resume", 200, "resumed\n", `resume ""`)
	f(full, "POST", "/-/resume?collector=nvml", 200, "resumed\n", `resume "nvml"`)

	f(full, "POST", "/-/record", 200, "recording\n", "record")
	f(full, "POST", "/-/record?for=1s", 400, "record: unknown parameter for\n", "")
	f(full, "GET", "/-/record", 405, "Method Not Allowed\n", "")
	f(plain, "POST", "/-/record", 403, "recording over HTTP is not enabled\n", "")

	f(full, "GET", "/-/release", 405, "Method Not Allowed\n", "")
	f(full, "GET", "/-/resume", 405, "Method Not Allowed\n", "")
	f(plain, "POST", "/-/release", 403, "release over HTTP is not enabled\n", "")
	f(plain, "POST", "/-/resume", 403, "release over HTTP is not enabled\n", "")
	f(full, "POST", "/-/release", 403, "cross-origin request detected from Sec-Fetch-Site header\n", "", "Sec-Fetch-Site", "cross-site")

	// A slip must not release everything, or for ever.
	f(full, "POST", "/-/release?colector=nvml", 400, "release: unknown parameter colector\n", "")
	f(full, "POST", "/-/release?collector=", 400, "release: give collector one value\n", "")
	f(full, "POST", "/-/release?for=1s&for=2s", 400, "release: give for one value\n", "")
	f(full, "POST", "/-/release?for=10", 400, "release: for is 10: write a duration such as 90s or 10m, or 0 for until it is resumed\n", "")
	f(full, "POST", "/-/release?for=-1s", 400, "release: for is -1s: write a duration such as 90s or 10m, or 0 for until it is resumed\n", "")
	f(full, "POST", "/-/release?a;b", 400, "release: invalid semicolon separator in query\n", "")
	f(full, "POST", "/-/resume?for=1s", 400, "resume: unknown parameter for\n", "")

	answer = fmt.Errorf("%w: %q", lists.ErrUnknownCollector, "x")
	f(full, "POST", "/-/release?collector=x", 404, "release: no such collector is enabled: \"x\"\n", `release "x" for 0s`)
	f(full, "POST", "/-/resume?collector=x", 404, "resume: no such collector is enabled: \"x\"\n", `resume "x"`)
	answer = errors.New("child 7 has not ended")
	f(full, "POST", "/-/release", 500, "release: child 7 has not ended\n", `release "" for 0s`)
}

// TestReleaseOutlivesItsClient: what holds a driver must not depend on who waits.
func TestReleaseOutlivesItsClient(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	_, address, stop := start(t, nil, Options{
		DrainTimeout: 10 * time.Millisecond,
		Release: func(ctx context.Context, _ string, _ time.Duration) error {
			close(entered)
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		},
		Resume: func(string) error { return nil },
	})
	c := dial(t, address)
	send(t, c, "POST /-/release HTTP/1.1\r\nHost: x\r\n\r\n")
	<-entered
	c.Close()
	select {
	case <-ended:
		t.Fatal("the release was ended with its client")
	case <-time.After(50 * time.Millisecond): // the server has long seen the end of the connection
	}
	go stop()
	<-ended
}

// record is a command of an extension.
func record(run func(context.Context) error) []Route {
	return []Route{{Pattern: "/-/record", Command: &Command{Verb: "record", Done: "recording", Disabled: "recording over HTTP is not enabled", Run: run}}}
}
