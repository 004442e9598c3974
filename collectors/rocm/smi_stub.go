//go:build !linux || !cgo

package rocm

import (
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// smiLibrary does not exist in this build.
type smiLibrary struct{ path string }

func loadSMI([]string) (*smiLibrary, error) {
	return nil, fmt.Errorf("load ROCm SMI: %w: %w", collector.ErrNotBuiltIn, dl.ErrUnavailable)
}

func (*smiLibrary) has(smiFunction) bool                      { return false }
func (*smiLibrary) start(uint64) smiStatus                    { return smiUnsupported }
func (*smiLibrary) stop() smiStatus                           { return smiUnsupported }
func (*smiLibrary) devices() (uint32, smiStatus)              { return 0, smiUnsupported }
func (*smiLibrary) call(uint32, smiAsk, *[2]uint64) smiStatus { return smiUnsupported }
