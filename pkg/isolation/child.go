package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/sampler"
)

// ControlFD is the number of the control channel's descriptor in a child.
const ControlFD = 3

// Setup is what a child knows before it makes its collector.
type Setup struct {
	Start  time.Time   // of the exporter, not of this child
	Logger *zap.Logger // whose entries the parent writes
}

// errOrphaned ends a child whose parent has gone.
var errOrphaned = errors.New("the exporter that this process belongs to is gone")

// Child samples the collector that open returns until the parent says stop, and
// returns nil then. It returns an error as soon as the parent is gone, without
// waiting for library calls: the caller must end the process. build must be that
// of the parent. Call it once, in a process that a Supervisor has started.
func Child(ctx context.Context, control *os.File, build string, open func(Setup) (collector.Factory, error)) error {
	settle()
	conn, err := newConn(control)
	if err != nil {
		return err
	}
	defer conn.close()
	c := &child{
		conn: conn.childEnd(), gone: make(chan struct{}), stopped: make(chan struct{}),
		waiting: map[uint64]chan<- granted{}, ids: map[*ring.Ring]uint64{},
	}
	return c.run(ctx, build, open)
}

// child is the inner side of the wall.
type child struct {
	conn     *conn
	deadline time.Duration // of a library call
	sampler  *sampler.Sampler
	counts   prometheus.Gatherer
	log      *logSender
	gone     chan struct{} // closed when nothing more comes from the parent
	stopped  chan struct{} // closed when the parent says stop

	mu      sync.Mutex
	lists   []versionedList
	lastID  uint64
	waiting map[uint64]chan<- granted // sources that wait for memory
	ids     map[*ring.Ring]uint64
	bound   []uint64 // ids handed out since the last publication
	shown   []shownSource
}

type versionedList struct {
	version uint64
	list    field.List
}

// shownSource is a source in service.
type shownSource struct {
	id      uint64
	devices []collector.Device
}

func (c *child) run(ctx context.Context, build string, open func(Setup) (collector.Factory, error)) error {
	s, err := c.greet(build)
	if err != nil {
		return err
	}
	list, err := parseList(s.list)
	if err != nil {
		return err
	}
	c.deadline = s.deadline
	c.lists = []versionedList{{s.version, list}}
	level, err := zapcore.ParseLevel(s.level)
	if err != nil {
		return fmt.Errorf("read setup: %w", err)
	}
	c.log = newLogSender(level)
	logger := zap.New(c.log.core())
	factory, err := open(Setup{Start: time.Unix(0, s.start), Logger: logger})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	c.counts = registry
	c.sampler = sampler.New([]collector.Factory{factory}, list, sampler.Options{
		Interval: s.interval, SlowInterval: s.slow, StaticInterval: s.static, Deadline: s.deadline,
		OpenTimeout: s.open, RescanInterval: s.rescan, RetryMax: s.retry, LostMemory: s.lost,
		StopTimeout: s.stop, RingSpan: s.span, Logger: logger, Registerer: registry,
		NewRing: c.newRing, OnPublish: c.publish, Replaceable: true,
	})
	return c.work(ctx)
}

// greet exchanges hello and setup.
func (c *child) greet(build string) (setup, error) {
	var s setup
	if err := c.conn.send(kindHello, &hello{build: build, pid: os.Getpid()}); err != nil {
		return s, err
	}
	k, payload, err := c.conn.next()
	switch {
	case err != nil:
		return s, fmt.Errorf("wait for setup: %w", err)
	case k != kindSetup:
		return s, fmt.Errorf("wait for setup: message %d came first", k)
	}
	return s, unmarshal(payload, &s)
}

// work samples and talks until the parent says stop or is gone.
func (c *child) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go c.listen(ctx)
	go c.report(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.sampler.Run(ctx) }()
	select {
	case <-c.gone:
		return errOrphaned
	case <-ctx.Done():
	case <-c.stopped:
	}
	cancel()
	select {
	case <-c.gone:
		return errOrphaned
	case err := <-ended:
		if err != nil { // of calls that do not return; they end with the process
			zap.New(c.log.core()).Warn("stop", zap.Error(err))
		}
	}
	c.tellCounts()
	c.log.flush(c.conn)
	return nil
}

// listen reads what the parent says until it is gone.
func (c *child) listen(ctx context.Context) {
	defer close(c.gone)
	for {
		k, payload, err := c.conn.next()
		if err != nil {
			return
		}
		switch k {
		case kindMemory:
			err = c.onMemory(payload)
		case kindList:
			err = c.onList(ctx, payload)
		case kindAgain:
			go c.again(ctx)
		case kindStop:
			close(c.stopped)
			_, _, _ = c.conn.next() // until the parent closes the channel
			return
		default: // of a later version
		}
		if err != nil {
			return
		}
	}
}

// again samples everything once more and says so, also where a call hangs: the
// parent has waited long enough then.
func (c *child) again(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	c.sampler.Again(ctx)
	_ = c.conn.send(kindSampled, empty{}) // if the parent is gone, listen notices
}

func (c *child) onList(ctx context.Context, payload []byte) error {
	var m listChange
	if err := unmarshal(payload, &m); err != nil {
		return err
	}
	list, err := parseList(m.list)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.lists = append(c.lists, versionedList{m.version, list})
	c.mu.Unlock()
	go func() {
		answer := reloaded{version: m.version}
		if err := c.sampler.Reload(ctx, list); err != nil {
			answer.problem = err.Error()
		}
		_ = c.conn.send(kindReloaded, &answer) // if the parent is gone, listen notices
	}()
	return nil
}

// parseList reads what the parent has formatted. A list may be empty.
func parseList(csv []byte) (field.List, error) {
	list, _, err := field.Parse(bytes.NewReader(csv), field.ParseOptions{File: "of the parent"})
	return list, err
}
