//go:build !linux || !cgo || !(amd64 || arm64)

package native

import "warpgauge/pkg/dl"

// Library does not exist in this build.
type Library struct {
	path      string
	functions []Function
}

// Load answers dl.ErrUnavailable.
func Load([]string, []Function) (*Library, error) { return nil, dl.ErrUnavailable }

// Has is false.
func (*Library) Has(int) bool { return false }

func (*Library) call(int, *[maxArgs]uint64) int32 { panic("no library can be loaded") }

// New returns memory of Go's, as no library sees it.
func New[T any]() *T { return new(T) }

// Free does nothing.
func Free[T any](*T) {}

// Address is of no use.
func Address[T any](*T) uint64 { return 0 }
