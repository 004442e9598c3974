package exporter

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/session"
)

// Owners finds the users of devices. It has clients of the servers that know users, and the table that joins
// their answers with the devices. The clients run in this process, never in a collector's.
type Owners struct {
	keeper  *owner.Keeper
	clients []client
	Health  kube.Healths
	log     *zap.Logger
}

type client struct {
	name string
	run  func(context.Context) error
	// complete reports whether the client has learned everything for the start. nil: the first answer or failure is enough.
	complete func() bool
}

// newOwners makes the configured clients; nil if there are none. It opens no sockets or files: a server that
// does not answer never ends the process.
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
		OwnPod:       ownPod(a.Lookup),
		StaleAfter:   cfg.EffectiveStaleAfter(),
		Registerer:   reg,
		Log:          log,
	}
	changed := func() { o.keeper.Notify() } // the clients do not run yet
	if cfg.HPCJobDir != "" {
		j := owner.NewJobDirectory(cfg.HPCJobDir, changed, log)
		table.Jobs = j
		o.add(client{name: "job directory", run: j.Run, complete: j.Ready}, j.Health)
	}
	if cfg.Kubernetes.Enabled {
		kubelet := kube.NewKubelet(kube.KubeletOptions{
			Socket: cfg.Kubernetes.Socket, Period: cfg.Kubernetes.Interval, Resources: cfg.Kubernetes.ResourceNames,
			OnChange: changed, Log: log,
		})
		table.Allocations = kubelet
		o.add(client{name: "pod resources", run: kubelet.Run}, kubelet.Health)
		o.addAPIServer(a, cfg, kubelet, &table, changed, log)
		if board := e.Processes(); board != nil && cfg.Kubernetes.ProcessValuesWanted() {
			p := owner.NewProcesses(board, changed, log)
			table.Processes = p
			o.add(client{name: "processes", run: p.Run, complete: polledAfter(e, p)}, p.Health)
		}
	}
	o.keeper = owner.New(e.Board(), table)
	reg.MustRegister(o.Health)
	return o
}

func (o *Owners) add(c client, health ...*kube.Health) {
	o.clients = append(o.clients, c)
	o.Health = append(o.Health, health...)
}

// addAPIServer asks the API server for facts that the kubelet does not report, if configured. Process values
// need the uids of pods.
func (o *Owners) addAPIServer(a *Program, cfg *config.Config, kubelet *kube.Kubelet, table *owner.Options, changed func(), log *zap.Logger) {
	k := &cfg.Kubernetes
	table.PodFacts = k.Facts.Labels
	pods := k.Facts.UID || len(k.Facts.Labels) > 0 || k.PodLabels || k.PodUID || k.ProcessValuesWanted()
	if !pods && !k.DRA {
		return
	}
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
		options.Kubelet = kubelet
	}
	s := kube.NewAPIServer(options)
	table.Metadata = s
	c := client{name: "pod metadata", run: s.Run}
	if k.DRA {
		c.complete = func() bool { return !s.Snapshot().ClaimsTime.IsZero() }
	}
	o.add(c, s.Health...)
}

// polledAfter reports whether processes were polled after their collectors had reported them.
func polledAfter(e *Engine, p *owner.Processes) func() bool {
	var since time.Time
	return func() bool {
		if slices.ContainsFunc(e.readers, func(s processReader) bool { return !session.Opened([]session.CollectorStatus{s.Status()}) }) {
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return p.Snapshot().Time.After(since)
	}
}

// Stages lists the stages in the order of the data flow. A nil Owners has none.
func (o *Owners) stages() (out []Stage) {
	if o == nil {
		return nil
	}
	for _, c := range o.clients {
		out = append(out, Stage{Name: c.name, Run: func(ctx context.Context) error {
			if err := c.run(ctx); err != nil && ctx.Err() == nil {
				o.log.Error(c.name+" has ended, its last answer is kept", zap.Error(err))
			}
			<-ctx.Done() // the exporter runs without it
			return nil
		}})
	}
	return append(out, Stage{Name: "owner table", Run: o.keeper.Run})
}

// WriteProblems writes the failed mappings with their reasons, and the kubelet's devices that the exporter does not have.
func (o *Owners) WriteProblems(w io.Writer, waited time.Duration) {
	if o == nil {
		return
	}
	for _, h := range o.Health {
		switch s := h.State(); {
		case s.Problem != nil:
			fmt.Fprintf(w, "mapping %s fails (%s): %v\n", s.Name, s.Failing, s.Problem) //nolint:errcheck // the output may be closed
		case !s.Tried:
			fmt.Fprintf(w, "mapping %s: no answer within %v\n", s.Name, waited) //nolint:errcheck // as above
		}
	}
	for _, u := range o.keeper.Unmatched() {
		fmt.Fprintf(w, "not a device of this machine: %s %s of pod %s/%s (%s)\n", u.Resource, u.ID, u.Namespace, u.Pod, u.Reason) //nolint:errcheck // as above
	}
}

// namespaceFile holds the namespace of a pod with a service account.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// ownPod returns this process's own pod from POD_NAME and POD_NAMESPACE. The kubelet lists it as a user of all devices if
// it gets them by a claim, as with dynamic resource allocation, but it does not use them. Without the variables a pod's
// host name is its name; on the host's network no pod has that name. Names of a DaemonSet's pods are unique enough if the
// namespace is unknown. An empty name means no pod.
func ownPod(lookup func(string) (string, bool)) (p kube.PodName) {
	if in, _ := lookup("KUBERNETES_SERVICE_HOST"); in == "" {
		return p
	}
	p.Name, _ = lookup("POD_NAME")
	p.Namespace, _ = lookup("POD_NAMESPACE")
	if p.Name == "" {
		p.Name, _ = os.Hostname() // without a name there is no pod to leave out
	}
	if p.Namespace == "" {
		text, _ := os.ReadFile(namespaceFile) // as above
		p.Namespace = strings.TrimSpace(string(text))
	}
	return p
}
