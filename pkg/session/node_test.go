package session

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session/sessiontest"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newNode is a library with the given number of devices, whose cells are 42.
func newNode(tb testing.TB, n int) *sessiontest.Library {
	tb.Helper()
	l := sessiontest.New(tb)
	for i := range n {
		id := fmt.Sprintf("GPU-%d", i)
		l.IDs = append(l.IDs, id)
		l.Value[id] = 42
	}
	return l
}

// desc makes a descriptor that the catalogue does not have.
func desc(id field.ID, cost field.Cost) *field.Descriptor {
	return &field.Descriptor{ID: id, Name: fmt.Sprintf("F%d", id), Min: math.Inf(-1), Max: math.Inf(1), Cost: cost}
}

func list(descs ...*field.Descriptor) field.List {
	var l field.List
	for _, d := range descs {
		l.Fields = append(l.Fields, field.Field{Desc: d, Name: d.Name, Scale: 1})
	}
	return l
}

var oneField = list(desc(60001, field.EachTick))

// running is a session that runs in a bubble.
type running struct {
	*Session
	cancel context.CancelFunc
	ended  chan error // of Run, once
	at     time.Time  // it returned, after ended
}

func start(t *testing.T, open collector.Factory, fields field.List, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Session: New(open, fields, o), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		err := r.Run(ctx)
		r.at = time.Now()
		r.ended <- err
	}()
	t.Cleanup(cancel)
	synctest.Wait()
	return r
}

// stop ends the session and returns how long that took and the error of Run.
func (r *running) stop() (time.Duration, error) {
	begin := time.Now()
	r.cancel()
	err := <-r.ended
	return time.Since(begin), err
}

// hasEnded reports whether Run has returned, with its error.
func (r *running) hasEnded() (error, bool) {
	synctest.Wait()
	select {
	case err := <-r.ended:
		return err, true
	default:
		return nil, false
	}
}

func (r *running) state(t *testing.T, id string) DeviceStatus {
	t.Helper()
	for _, d := range r.Status().Devices {
		if d.Device.ID == id {
			return d
		}
	}
	t.Fatalf("no status of %q", id)
	return DeviceStatus{}
}
