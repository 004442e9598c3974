package arbiter

import (
	"context"
	"sync/atomic"

	"go.uber.org/zap"
)

// sleeper puts the secondary to sleep and wakes it, one call at a time, so that
// nobody who wants either waits for it.
type sleeper struct {
	standby func(ctx context.Context, sleep bool) error
	log     *zap.Logger
	wanted  atomic.Bool
	changed chan struct{}
}

// want says what should be. The last word counts.
func (s *sleeper) want(sleep bool) {
	if s.wanted.Swap(sleep) == sleep {
		return
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *sleeper) run(ctx context.Context) {
	asleep := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		sleep := s.wanted.Load()
		if s.standby == nil || sleep == asleep {
			continue
		}
		if err := s.standby(ctx, sleep); err != nil && ctx.Err() == nil {
			s.log.Warn("standby of a collector", zap.Bool("sleep", sleep), zap.Error(err))
		}
		asleep = sleep
	}
}
