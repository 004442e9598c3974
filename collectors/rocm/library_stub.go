//go:build !linux || !cgo || !(amd64 || arm64)

package rocm

import "warpgauge/collectors/internal/dl"

// load returns dl.ErrUnavailable.
func load([]string, *libraryAPI) (*library, error) { return nil, dl.ErrUnavailable }

func (*library) call(int, *[maxArgs]uint64) int32 { panic("no library can be loaded") }

// cNew returns Go memory, because there is no library.
func cNew[T any]() *T { return new(T) }

// cFree does nothing.
func cFree[T any](*T) {}

// addressOf returns 0.
func addressOf[T any](*T) uint64 { return 0 }
