// Package remote is the extension that gets field lists from a server. It checks each list against the guard, proposes it to
// the Desk and saves the last good one on disk. It withdraws lists that expire or cost too much. The server is a web server
// (URL) or an OpAMP server (package opamp). Package fleet is the reference server and not a part of the exporter.
package remote

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.uber.org/zap"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/config"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Engine samples this node's devices.
type Engine interface {
	Board() *view.Board
	Status() []session.CollectorStatus
	Costs() []session.Costs
	// AwaitOpened returns when every collector has been opened and its devices have been sampled, or reports why not.
	AwaitOpened(context.Context)
}

// Page is the metrics page.
type Page interface {
	Sync(now time.Time)
	Series() int // as of the last Sync
}

// Options of New.
type Options struct {
	Settings   *Settings
	Config     *config.Config
	Version    string // of the exporter
	Hostname   string
	Desk       *lists.Desk
	Engine     Engine
	Page       Page
	Registerer prometheus.Registerer
	Logger     *zap.Logger
}

// Remote polls a server for lists.
type Remote struct {
	*Manager
	drivers []string // the last values of the driver label
	source  interface{ Run(context.Context) error }
}

// New returns a Remote and serves its saved list. Call it before the engine runs. ctx bounds the reading of files.
func New(ctx context.Context, o Options) (*Remote, error) {
	c := o.Settings
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err // the flags were checked
	}
	r := &Remote{Manager: newManager(o)}
	if scheme, ok := strings.CutPrefix(u.Scheme, "opamp+"); ok {
		u.Scheme = scheme
		ignored := promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_opamp_ignored_offers_total",
			Help: "Messages of the OpAMP server with something that the agent does not take: packages, connection settings, restart command, custom message.",
		}, []string{"offer"})
		r.source = opamp.New(opamp.Options{
			URL: u, Transport: transport.New(u, c.Credentials), Interval: c.Interval, MaxBytes: c.Limits.Bytes,
			Identity: r.identity(ctx), Node: r, Desk: r, Ignored: ignored, Logger: o.Logger,
		})
	} else {
		r.source = newURL(u, transport.New(u, c.Credentials), c, "warpgauge/"+o.Version, r)
	}
	r.restore()
	return r, nil
}

// openPatience bounds the wait for the collectors before the first request: the guard counts devices.
const openPatience = 30 * time.Second

// Run polls the server until ctx ends.
func (r *Remote) Run(ctx context.Context) error {
	c := r.o.Settings
	r.o.Logger.Info("lists come from a server", zap.String("server", r.origin), zap.String("mode", c.Mode), zap.Duration("interval", c.Interval))
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = r.Manager.Run(ctx) }) // it returns no error
	opening, cancel := context.WithTimeout(ctx, openPatience)
	r.o.Engine.AwaitOpened(opening)
	cancel()
	return r.source.Run(ctx)
}
