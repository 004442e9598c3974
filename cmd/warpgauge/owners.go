package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/mapping"
	"warpgauge/pkg/owner"
)

// owners is all that says who uses a device: clients, each of which asks one that
// knows something of it, and the table that joins their answers with the devices.
// The clients live in this process, never in a collector's.
type owners struct {
	keeper    *owner.Keeper
	clients   []client
	health    mapping.Set
	suspicion suspicion
	log       *zap.Logger
}

// client is one of them.
type client struct {
	name string
	run  func(context.Context) error
	// settled says that what there is to learn at the start is learned, beyond the first
	// answer or failure; nil: that is all.
	settled func() bool
	// grace is how long its end is waited for. What takes longer is a system call or
	// a server that hangs, and nothing can be lost by leaving it.
	grace time.Duration
}

// newOwners makes those that the configuration wants, nil if none. It touches
// neither sockets nor files: whether somebody answers shows later, and never ends
// the process.
func (a *app) newOwners(cfg *config.Config, e *engine, reg prometheus.Registerer, log *zap.Logger) *owners {
	if !cfg.Kubernetes.Enabled && cfg.HPCJobDir == "" {
		return nil
	}
	o := &owners{log: log.Named("owners")}
	table := owner.Options{
		Virtual:      cfg.Kubernetes.VirtualGPUs,
		Claims:       cfg.Kubernetes.DRA,
		PodUID:       cfg.Kubernetes.PodUID,
		PodLabels:    cfg.Kubernetes.PodLabels,
		OldNamespace: cfg.OldNamespace,
		Hostname:     cfg.HostnameLabel,
		Ignore:       a.self().is,
		StaleAfter:   cfg.EffectiveStaleAfter(),
		Registerer:   reg,
		Log:          log,
	}
	changed := func() { o.keeper.Notify() } // the clients do not run yet
	if cfg.HPCJobDir != "" {
		o.addJobs(cfg, &table, changed, log)
	}
	if cfg.Kubernetes.Enabled {
		o.addKubelet(cfg, &table, changed, log)
		o.addAPIServer(a, cfg, &table, changed, log)
		o.addRuntime(cfg, &table, changed, log)
		o.addProcesses(e, &table, changed, log)
	}
	o.keeper = owner.New(e.Board(), table)
	o.suspicion.board, o.suspicion.unknown = e.Board(), o.keeper.Unmatched
	if reg != nil {
		reg.MustRegister(o.health)
	}
	return o
}

// add adds a client and how it goes with it.
func (o *owners) add(c client, health ...*mapping.Health) {
	o.clients = append(o.clients, c)
	o.health = append(o.health, health...)
}

// stages lists what runs, in the order of the data flow. Nil has none.
func (o *owners) stages() (out []stage) {
	if o == nil {
		return nil
	}
	for _, c := range o.clients {
		out = append(out, stage{name: c.name, run: o.lasting(c), grace: c.grace})
	}
	return append(out,
		stage{name: "owner table", run: o.keeper.Run, grace: 200 * time.Millisecond},
		stage{name: "look for changed devices", run: o.suspicion.run, grace: 200 * time.Millisecond})
}

// lasting makes a client a stage, which may not end while it is needed: a mapping
// is nothing to end the exporter for.
func (o *owners) lasting(c client) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.run(ctx); err != nil && ctx.Err() == nil {
			o.log.Error(c.name+" has ended, its last answer is kept", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}
}
