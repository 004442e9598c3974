package isolation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestRelayKeepsBack: what a child says while it only looks is written when it is
// of use after all, but for what the child before has said.
func TestRelayKeepsBack(t *testing.T) {
	f := func(said string, want ...string) {
		t.Helper()
		core, logs := observer.New(zapcore.DebugLevel)
		r := &relay{log: zap.New(core)}
		r.take(&logEntry{text: "at once"})
		r.hold()
		r.take(&logEntry{text: "not in use", fields: []logField{{key: "error", value: "no library"}}})
		r.take(&logEntry{text: "in use"})
		if n := logs.Len(); n != 1 {
			t.Errorf("%d lines while it is held, want the one before", n)
		}
		r.release(said)
		r.take(&logEntry{text: "later"})
		var got []string
		for _, l := range logs.All() {
			got = append(got, l.Message)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", said, diff)
		}
	}
	f("", "at once", "not in use", "in use", "later")
	f("no library", "at once", "in use", "later")
	f("no driver", "at once", "not in use", "in use", "later")
}
