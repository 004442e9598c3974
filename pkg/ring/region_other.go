//go:build !linux

package ring

import "sync/atomic"

func create(int) (int, error)  { return -1, ErrNotSupported }
func inspect(int) (int, error) { return 0, ErrNotSupported }
func protect([]byte) error     { return ErrNotSupported }
func unmap([]byte) error       { return ErrNotSupported }
func closeFD(int) error        { return nil }

func mapWords(int, int) ([]byte, []atomic.Uint64, error) { return nil, nil, ErrNotSupported }
