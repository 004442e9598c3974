package collectortest

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// checkLost removes a board and brings it back. The others must keep working, and another collector must open meanwhile.
func checkLost(tb *subtest) {
	if tb.rig.LoseDevice == nil || tb.rig.RestoreDevice == nil {
		tb.Skip("the rig has no LoseDevice and RestoreDevice")
	}
	c, sources := tb.open()
	id := board(tb, sources)
	tb.rig.LoseDevice(id)
	for i, s := range sources {
		err := sample(s)
		switch at := deviceIndex(s, id); {
		case at < 0 && err != nil:
			tb.Errorf("source %d does not have the lost device %q: got error %v", i, id, err)
		case at >= 0 && !errors.Is(err, collector.ErrDeviceLost):
			tb.Errorf("source %d has the lost device %q: got error %v, want ErrDeviceLost", i, id, err)
		case at >= 0 && len(boards(s)) > 1 && !namesDevice(err, at):
			tb.Errorf("source %d has %d boards, and its error names none: %v", i, len(boards(s)), err)
		}
	}
	tb.rig.RestoreDevice(id)
	for i, s := range sources {
		if deviceIndex(s, id) < 0 {
			continue
		}
		// A library that must be loaded again to see the board returns ErrColumnsChanged.
		if err := sample(s); err != nil && !errors.Is(err, collector.ErrColumnsChanged) {
			tb.Errorf("source %d after device %q came back: %v", i, id, err)
		}
	}
	closeNow(tb, c)
	tb.rig.LoseDevice(id)
	if err := openAndClose(tb); err != nil {
		tb.Errorf("open while a device is lost: %v", err)
	}
	tb.rig.RestoreDevice(id)
	_, again := tb.open()
	for i, s := range again {
		if err := sample(s); err != nil {
			tb.Errorf("source %d of a new open after device %q came back: %v", i, id, err)
		}
	}
}

// checkHang makes a board hang. Only its Sample may block.
func checkHang(tb *subtest) {
	if tb.rig.Hang == nil {
		tb.Skip("the rig has no Hang")
	}
	c, sources := tb.open()
	id := board(tb, sources)
	hung := slices.IndexFunc(sources, func(s collector.Source) bool { return deviceIndex(s, id) >= 0 })
	release := tb.rig.Hang(id)
	blocked := make(chan error, 1)
	go func() { blocked <- sample(sources[hung]) }()

	others := make(chan error, 1)
	go func() { others <- sampleOthers(sources, hung) }()
	if err, ok := within(tb.h.Patience, others); !ok {
		tb.Errorf("other sources hang with device %q", id)
		defer func() { tb.Logf("other sources in the end: %v", <-others) }()
	} else if err != nil {
		tb.Errorf("sample of other sources while device %q hangs: %v", id, err)
	}
	// A hanging call does not return, however long we wait; a short wait usually finds a call that does not hang.
	if err, returned := within(50*time.Millisecond, blocked); returned {
		tb.Errorf("sample of the hanging device %q returned: %v", id, err)
		blocked <- err
	}
	release()
	if _, ok := within(tb.h.Patience, blocked); !ok {
		tb.Fatalf("sample of device %q did not return when it no longer hung", id)
	}
	if err := sample(sources[hung]); err != nil {
		tb.Errorf("sample of device %q after it hung: %v", id, err)
	}
	closeNow(tb, c)

	release = tb.rig.Hang(id)
	next := tb.rig.Factory()
	opened := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), tb.h.Patience)
		defer cancel()
		_, err := next.Open(ctx, tb.h.Fields)
		opened <- err // Close may wait for the call that hangs
	}()
	err, ok := within(tb.h.Patience, opened)
	release()
	if !ok {
		tb.Errorf("open hangs with device %q", id)
		err = <-opened
	}
	if err != nil {
		tb.Errorf("open while device %q hangs: %v", id, err)
	}
	closeNow(tb, next)
}

// checkChanged makes open sources outdated. Sample or Rescan must report it, and a new Open must return the new state.
func checkChanged(tb *subtest) {
	if tb.rig.ChangeColumns == nil {
		tb.Skip("the rig has no ChangeColumns")
	}
	c, sources := tb.open()
	for i, s := range sources {
		if err := sample(s); err != nil {
			tb.Errorf("source %d before the change: %v", i, err)
		}
	}
	tb.rig.ChangeColumns()
	said := false
	for i, s := range sources {
		switch err := sample(s); {
		case errors.Is(err, collector.ErrColumnsChanged):
			said = true
		case err != nil:
			tb.Errorf("source %d after a change of columns: got error %v, want nil or ErrColumnsChanged", i, err)
		}
	}
	if r, ok := c.(collector.Rescanner); ok && !said {
		changed, err := r.Rescan(context.Background())
		if err != nil {
			tb.Errorf("rescan: %v", err)
		}
		said = changed
	}
	if !said {
		tb.Errorf("devices or columns changed: neither Sample nor Rescan reports it")
	}
	closeNow(tb, c)
	_, fresh := tb.open()
	if cmp.Equal(shapes(sources), shapes(fresh)) {
		tb.Errorf("a new open after the change finds the old devices and columns")
	}
	for i, s := range fresh {
		if err := sample(s); err != nil {
			tb.Errorf("source %d of a new open after the change: %v", i, err)
		}
	}
}

// openAndClose opens and closes a collector within the suite's patience.
func openAndClose(tb *subtest) error {
	c := tb.rig.Factory()
	ctx, cancel := context.WithTimeout(context.Background(), tb.h.Patience)
	defer cancel()
	_, err := c.Open(ctx, tb.h.Fields)
	return errors.Join(err, c.Close())
}

func sample(s collector.Source) error {
	return s.Sample(rowOf(s, math.NaN()), dueOf(s, true))
}

func sampleOthers(sources []collector.Source, but int) error {
	var errs []error
	for range 3 {
		for i, s := range sources {
			if i != but {
				errs = append(errs, sample(s))
			}
		}
	}
	return errors.Join(errs...)
}

// within waits for c, at most for d.
func within(d time.Duration, c <-chan error) (error, bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case err := <-c:
		return err, true
	case <-timer.C:
		return nil, false
	}
}

// board returns the device that the fault checks break: the last board, so that code which handles only the first board
// fails.
func board(tb testing.TB, sources []collector.Source) string {
	tb.Helper()
	for _, s := range slices.Backward(sources) {
		if ids := boards(s); len(ids) > 0 {
			return ids[len(ids)-1]
		}
	}
	tb.Fatalf("no device of level GPU among %d sources", len(sources))
	return ""
}

// boards returns the ids of the devices of level GPU.
func boards(s collector.Source) []string {
	var out []string
	for _, d := range s.Devices() {
		if d.Level == field.GPU {
			out = append(out, d.ID)
		}
	}
	return out
}

func deviceIndex(s collector.Source, id string) int {
	return slices.IndexFunc(s.Devices(), func(d collector.Device) bool { return d.ID == id })
}

// namesDevice reports whether err, or one of the errors joined in it, is a DeviceError of that device.
func namesDevice(err error, device int) bool {
	switch e := err.(type) { //nolint:errorlint // walks the tree of wrapped errors itself: errors.As stops at the first device
	case *collector.DeviceError:
		return e.Device == device
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return namesDevice(err, device) })
	case interface{ Unwrap() error }:
		return namesDevice(e.Unwrap(), device)
	}
	return false
}
