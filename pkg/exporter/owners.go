package exporter

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/owner"
)

// Owners is all that says who uses a device: clients of the servers that know something
// of it, and the table that joins their answers with the devices. The clients run in this
// process, never in a collector's.
type Owners struct {
	keeper  *owner.Keeper
	clients []client
	Health  kube.Healths
	repolls repollTrigger
	log     *zap.Logger
}

type client struct {
	name string
	run  func(context.Context) error
	// complete reports whether all that there is to learn at the start is learned, beyond
	// the first answer or failure; nil: that is all.
	complete func() bool
}

// newOwners makes the clients that the configuration asks for, nil if none. It touches
// neither sockets nor files: whether a server answers shows later, and never ends
// the process.
func newOwners(a *Program, cfg *config.Config, e *Engine, reg prometheus.Registerer, log *zap.Logger) *Owners {
	if !cfg.Kubernetes.Enabled && cfg.HPCJobDir == "" {
		return nil
	}
	o := &Owners{log: log.Named("owners")}
	table := owner.Options{
		Virtual:      cfg.Kubernetes.VirtualGPUs,
		Claims:       cfg.Kubernetes.DRA,
		PodUID:       cfg.Kubernetes.PodUID,
		PodLabels:    cfg.Kubernetes.PodLabels,
		JobLabels:    cfg.HPCLabels,
		OldNamespace: cfg.OldNamespace,
		Hostname:     cfg.HostnameLabel,
		Ignore:       newOwnPod(a.Lookup).is,
		StaleAfter:   cfg.EffectiveStaleAfter(),
		Registerer:   reg,
		Log:          log,
	}
	changed := func() { o.keeper.Notify() } // the clients do not run yet
	if cfg.HPCJobDir != "" {
		j := owner.NewJobDirectory(cfg.HPCJobDir, changed, log)
		table.Jobs = j.Snapshot
		o.add(client{name: "job directory", run: j.Run, complete: j.Ready}, j.Health)
	}
	if cfg.Kubernetes.Enabled {
		o.addKubelet(cfg, &table, changed, log)
		o.addAPIServer(a, cfg, &table, changed, log)
		o.addRuntime(cfg, &table, changed, log)
		o.addProcesses(cfg, e, &table, changed, log)
	}
	o.keeper = owner.New(e.Board(), table)
	o.repolls.board, o.repolls.unknown = e.Board(), o.keeper.Unmatched
	if reg != nil {
		reg.MustRegister(o.Health)
	}
	return o
}

func (o *Owners) add(c client, health ...*kube.Health) {
	o.clients = append(o.clients, c)
	o.Health = append(o.Health, health...)
}

// addKubelet asks the kubelet which container has which device.
func (o *Owners) addKubelet(cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	k := kube.NewKubelet(kube.KubeletOptions{
		Socket: cfg.Kubernetes.Socket,
		Period: cfg.Kubernetes.Interval,
		Keep: func(resource string) bool {
			return field.OffersGPU(resource) || slices.Contains(cfg.Kubernetes.ResourceNames, resource)
		},
		OnChange: changed, Log: log,
	})
	table.Allocations = k.Snapshot
	o.repolls.kubelet = k
	o.add(client{name: "pod resources", run: k.Run}, k.Health)
}

// addAPIServer asks the API server for facts that the kubelet does not report, if that is
// configured. Values of processes need uids of pods, which the container runtime knows too.
func (o *Owners) addAPIServer(a *Program, cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	k := &cfg.Kubernetes
	table.PodFacts = k.Facts.Labels
	pods := k.Facts.UID || len(k.Facts.Labels) > 0 || k.PodLabels || k.PodUID || k.ProcessValuesWanted() && cfg.Containers.Socket == ""
	if !pods && !k.DRA {
		return
	}
	kube.RouteKlog(log)
	options := kube.APIOptions{
		Node: config.NodeName(a.Lookup), Pods: pods, Slices: k.DRA, UserAgent: "warpgauge/" + a.Build.Version,
		OnChange: changed, Log: log,
	}
	if k.PodLabels || len(table.PodFacts) > 0 {
		options.KeepLabel = func(name string) bool {
			return k.PodLabels && k.KeepLabel(name) || slices.ContainsFunc(table.PodFacts, func(l field.NameValue) bool { return l.Value == name })
		}
	}
	if k.DRA {
		options.Allocations = table.Allocations
	}
	s := kube.NewAPIServer(options)
	table.Metadata = s.Snapshot
	c := client{name: "pod metadata", run: s.Run}
	if k.DRA {
		c.complete = func() bool { return !s.Snapshot().ClaimsTime.IsZero() }
	}
	o.add(c, s.Health...)
}

// addRuntime asks the container runtime for the names of containers.
func (o *Owners) addRuntime(cfg *config.Config, table *owner.Options, changed func(), log *zap.Logger) {
	if cfg.Containers.Socket == "" {
		return
	}
	r := kube.NewRuntime(cfg.Containers.Socket, changed, log)
	table.Containers = r.Snapshot
	o.repolls.runtime, o.repolls.containers = r, r.Snapshot
	o.add(client{name: "container runtime", run: r.Run}, r.Health)
}

// addProcesses finds the containers of processes, if collectors report which are on
// which device.
func (o *Owners) addProcesses(cfg *config.Config, e *Engine, table *owner.Options, changed func(), log *zap.Logger) {
	board := e.Processes()
	if board == nil || !cfg.Kubernetes.ProcessValuesWanted() {
		return
	}
	p := owner.NewProcesses(board, changed, log)
	table.Processes = p.Snapshot
	o.repolls.processes = p.Snapshot
	o.add(client{name: "processes", run: p.Run, complete: polledAfter(e, p)}, p.Health)
}

// polledAfter reports whether processes were polled after their collectors had reported
// them.
func polledAfter(e *Engine, p *owner.Processes) func() bool {
	var since time.Time
	return func() bool {
		if !e.readersOpened() {
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return p.Snapshot().Time.After(since)
	}
}

// Stages lists what runs, in the order of the data flow. Nil has none.
func (o *Owners) stages() (out []Stage) {
	if o == nil {
		return nil
	}
	for _, c := range o.clients {
		out = append(out, Stage{Name: c.name, Run: o.lasting(c), Grace: ShortGrace})
	}
	return append(out,
		Stage{Name: "owner table", Run: o.keeper.Run, Grace: ShortGrace},
		Stage{Name: "check for changed devices", Run: o.repolls.run, Grace: ShortGrace})
}

// lasting makes a client a stage, which may not end while it is needed: a failed
// mapping does not end the exporter.
func (o *Owners) lasting(c client) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.run(ctx); err != nil && ctx.Err() == nil {
			o.log.Error(c.name+" has ended, its last answer is kept", zap.Error(err))
		}
		<-ctx.Done()
		return nil
	}
}

// namespaceFile is where a pod with a service account finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownPod is the pod that this process runs in. If an exporter gets its devices
// by a claim, as with dynamic resource allocation, the kubelet lists it
// as a user of all of them, which it is not.
type ownPod struct{ namespace, name string } // empty: not known

// newOwnPod finds out which pod this is: POD_NAME and POD_NAMESPACE say it. Without them
// a pod's host name is its name, unless it has the host's network, and then no
// pod has that name.
func newOwnPod(lookup func(string) (string, bool)) ownPod {
	if in, _ := lookup("KUBERNETES_SERVICE_HOST"); in == "" {
		return ownPod{}
	}
	var p ownPod
	p.name, _ = lookup("POD_NAME")
	p.namespace, _ = lookup("POD_NAMESPACE")
	if p.name == "" {
		p.name, _ = os.Hostname() // without a name there is no pod to leave out
	}
	if p.namespace == "" {
		text, _ := file.NewReader(1<<10).Read(context.Background(), namespaceFile) // as above
		p.namespace = strings.TrimSpace(string(text))
	}
	return p
}

// is says whether a pod is this one. Names of a DaemonSet's pods are unique enough
// if the namespace is not known.
func (p ownPod) is(namespace, name string) bool {
	return p.name != "" && p.name == name && (p.namespace == "" || p.namespace == namespace)
}
