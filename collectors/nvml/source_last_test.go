//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"testing"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// trailing is a stubPart that comes last.
type trailing struct{ *stubPart }

func (trailing) last() {}

// TestLastPart: XIDs are told of a GPU that is lost, in the order of the parts
// after everything else.
func TestLastPart(t *testing.T) {
	readings, events := newStub(map[field.ID]float64{150: 40}), trailing{newStub(map[field.ID]float64{field.XIDEvent: 79})}
	s := newSource([]collector.Device{{GPU: "0"}}, events, nil, readings)
	f := func(readingsErr, eventsErr, want error, code float64) {
		t.Helper()
		readings.err, events.err = readingsErr, eventsErr
		row := []float64{math.NaN(), math.NaN()}
		err := s.Sample(row, []bool{true, true})
		if want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("parts that answer %v and %v: got error %v, want %v", readingsErr, eventsErr, err, want)
		}
		if row[0] != code {
			t.Errorf("parts that answer %v and %v: the event's cell is %v, want %v", readingsErr, eventsErr, row[0], code)
		}
	}
	other := errors.New("some call failed")
	f(nil, nil, nil, 79)
	f(other, nil, other, 79)
	f(collector.ErrDeviceLost, nil, collector.ErrDeviceLost, 79)
	f(collector.ErrDeviceLost, collector.ErrColumnsChanged, collector.ErrDeviceLost, 79)
	f(nil, collector.ErrColumnsChanged, collector.ErrColumnsChanged, 79)
	f(other, collector.ErrColumnsChanged, collector.ErrColumnsChanged, 79)
}
