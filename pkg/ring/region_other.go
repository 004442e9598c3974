//go:build !linux

package ring

import (
	"errors"
	"os"
	"sync/atomic"
)

// Only Linux has memory that two processes share. Rings of one process (Make) work everywhere: warpctl replays
// recordings on other systems.

func create(int) (*os.File, error)                            { return nil, errors.ErrUnsupported }
func inspect(int) (int, error)                                { return 0, errors.ErrUnsupported }
func mapWords(*os.File, int) ([]byte, []atomic.Uint64, error) { return nil, nil, errors.ErrUnsupported }
func protect([]byte) error                                    { return errors.ErrUnsupported }
func unmap([]byte) error                                      { return errors.ErrUnsupported }
