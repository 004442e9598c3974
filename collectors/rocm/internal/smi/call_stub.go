//go:build !linux || !cgo || !(amd64 || arm64)

package smi

import "warpgauge/collectors/internal/dl"

// load returns dl.ErrUnavailable.
func load([]string, *API) (*Library, error) { return nil, dl.ErrUnavailable }

func (*Library) call(int, *[maxArgs]uint64) int32 { panic("no library can be loaded") }

// New returns Go memory, because there is no library.
func New[T any]() *T { return new(T) }

// Free does nothing.
func Free[T any](*T) {}

// Address returns 0.
func Address[T any](*T) uint64 { return 0 }
