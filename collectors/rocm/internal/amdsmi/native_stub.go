//go:build !linux || !cgo

package amdsmi

import "warpgauge/pkg/dl"

// native does not exist in this build.
type native struct {
	path   string
	memory *memory
}

func loadNative([]string) (*native, error) { return nil, dl.ErrUnavailable }

func at[T any](*T) uint64 { return 0 }

func (*native) has(function) bool               { return false }
func (*native) call(function, [7]uint64) status { return unsupported }
func (*native) free()                           {}
