package fake

import (
	"fmt"
	"maps"
	"slices"

	"warpgauge/pkg/collector"
)

// sampleError is what Sample (or Open) returns while f is active.
func (f *fault) sampleError() error {
	switch f.Kind {
	case Lost:
		return fmt.Errorf("simulated fault: %w", collector.ErrDeviceLost)
	case Stalled:
		return fmt.Errorf("simulated fault: %w", collector.ErrStalled)
	case Failing:
		return fmt.Errorf("simulated fault: %s", messageOr(f.Message, "unknown error [code 999]"))
	case OpenFails:
		return fmt.Errorf("open simulated node: %s: %w", messageOr(f.Message, "no driver"), collector.ErrNotLoaded)
	}
	return nil
}

func messageOr(message, otherwise string) string {
	if message == "" {
		return otherwise
	}
	return message
}

// keys of a fault in the spec, beside at, for and kind.
type keys struct {
	targets  bool // device and switch
	required []string
	optional []string
	moment   bool // takes no time: no key for
	process  bool // ruins the process: only in a World that may; key once
}

var faultKeys = map[FaultKind]keys{
	Hang:      {targets: true},
	Slow:      {targets: true, required: []string{"delay"}},
	Lost:      {targets: true},
	Stalled:   {targets: true},
	Failing:   {targets: true, optional: []string{"message"}},
	Absurd:    {targets: true, required: []string{"field", "value"}},
	Blank:     {targets: true, optional: []string{"field"}},
	XID:       {targets: true, required: []string{"xid"}, moment: true},
	Health:    {targets: true, required: []string{"watch", "state"}, optional: []string{"code"}},
	OpenFails: {optional: []string{"message"}},
	Devices:   {required: []string{"devices"}},
	Crash:     {process: true},
	Abort:     {process: true, optional: []string{"message"}},
	Exit:      {process: true, optional: []string{"status"}},
	Spin:      {process: true, targets: true},
	Leak:      {process: true, required: []string{"rate"}},
	FDs:       {process: true},
	Garbage:   {process: true},
	Scribble:  {process: true},
}

func faultKinds() []string {
	var names []string
	for k := range maps.Keys(faultKeys) {
		names = append(names, string(k))
	}
	slices.Sort(names)
	return names
}
