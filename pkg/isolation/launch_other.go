//go:build !linux

package isolation

import (
	"context"
	"errors"
)

// start refuses: sealed memory and the parent-death signal are Linux's.
func (l *launcher) start(context.Context, []string, []string) (*process, error) {
	return nil, errors.New("child processes are supported on Linux only: use --isolation=none")
}

func settle() {}
