package accounts

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/owner"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// Settings holds the extension's flags.
type Settings struct {
	Accounts  bool
	PodEvents bool
	IdleAfter time.Duration
	Names     string
	Directory string

	set *config.Set
}

// NewExtension returns the extension with the defaults of its flags.
func NewExtension() *Extension { return &Extension{Settings{IdleAfter: time.Hour, Names: NamesOwn}} }

// Values of --account-names.
const (
	NamesOwn      = "own"
	NamesJobstats = "jobstats"
)

const (
	flagDirectory = "account-directory"
	flagPodEvents = "account-pod-events"
)

var _ interface {
	exporter.Extension
	exporter.Reader
	exporter.ProcessViewer
} = (*Extension)(nil)

// Flags adds the extension's flags.
func (s *Settings) Flags(set *config.Set) {
	s.set = set
	set.Add(config.Section{Origin: config.Own, Flags: []config.Flag{{
		Name: "accounts", Env: "WARPGAUGE_ACCOUNTS", Group: "Accounts", Value: config.Bool(&s.Accounts),
		Usage: "Count what each pod and job has used of each GPU, in energy, time and memory, for /metrics, /api/v1/owners and warpctl job. Needs --kubernetes or --hpc-job-mapping-dir.",
	}, {
		Name: "account-idle-after", Env: "WARPGAUGE_ACCOUNT_IDLE_AFTER", Group: "Accounts", Value: config.Duration(&s.IdleAfter), Metavar: "DURATION", Needs: "accounts",
		Usage: "How long an owner must hold a GPU without use for an event and the series warpgauge_owner_idle.",
	}, {
		Name: "account-names", Env: "WARPGAUGE_ACCOUNT_NAMES", Group: "Accounts", Value: config.OneOf(&s.Names, NamesOwn, NamesJobstats), Metavar: "own|jobstats", Needs: "accounts",
		Usage: "jobstats: also the families of the exporter that Princeton's jobstats queries, with the labels jobid and userid.",
	}, {
		Name: flagDirectory, Env: "WARPGAUGE_ACCOUNT_DIRECTORY", Group: "Accounts", Value: config.Text(&s.Directory), Metavar: "DIRECTORY", Needs: "accounts", ShownDefault: "accounts in $STATE_DIRECTORY, if systemd sets it",
		Usage: "Keep the accounts here across restarts.",
	}, {
		Name: flagPodEvents, Env: "WARPGAUGE_ACCOUNT_POD_EVENTS", Group: "Accounts", Value: config.Bool(&s.PodEvents), Needs: "accounts",
		Usage: "Write a Kubernetes event with the report to each pod that has ended. Needs --kubernetes, and the right to create events in all namespaces.",
	}}, Check: s.check, Defaults: s.defaults})
}

// flag returns the value of another flag, "" if there is none.
func (s *Settings) flag(name string) string {
	for _, f := range s.set.Flags() {
		if f.Name == name {
			return f.Value.String()
		}
	}
	return ""
}

// defaults lets the kubelet be asked once a second: when pods come and go is known as well as that.
func (s *Settings) defaults(set *config.Set) error {
	if !s.Accounts || s.flag("kubernetes") != "true" {
		return nil
	}
	return set.SetDefault("pod-resources-interval", "1s", config.FromExtension)
}

func (s *Settings) check(c *config.Config) error {
	var errs []error
	if s.Accounts && s.PodEvents && !c.Kubernetes.Enabled {
		errs = append(errs, fmt.Errorf("--%s has no pods: set --kubernetes", flagPodEvents))
	}
	if s.IdleAfter < time.Second {
		errs = append(errs, fmt.Errorf("--account-idle-after is %v: write 1s or more", s.IdleAfter))
	}
	if s.Directory != "" && !filepath.IsAbs(s.Directory) {
		errs = append(errs, fmt.Errorf("--%s is %q: write an absolute path", flagDirectory, s.Directory))
	}
	return errors.Join(errs...)
}

// Readings implements exporter.Reader.
func (e *Extension) Readings(*config.Config, field.List) (out []field.Reading) {
	if !e.Accounts {
		return nil
	}
	ids := []field.ID{field.TotalEnergy, field.PowerUsage, field.GPUUtilization, memoryUsed, memoryTotal, field.SMClock, field.ClockEventReasons, field.XIDEvent}
	if e.Names == NamesJobstats {
		ids = append(ids, field.GPUTemperature)
	}
	for _, id := range ids {
		if d, known := field.ByID(id); known {
			out = append(out, field.Reading{Desc: d, Default: true})
		}
	}
	return out
}

// ViewsProcesses implements exporter.ProcessViewer.
func (e *Extension) ViewsProcesses() bool { return e.Accounts }

// Start implements exporter.Extension.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	if !e.Accounts {
		return nil, nil, nil
	}
	if c.Owners == nil {
		return nil, nil, fmt.Errorf("--accounts has no owners: set --kubernetes or --hpc-job-mapping-dir")
	}
	o := Options{Owners: c.Owners, IdleAfter: e.IdleAfter, Node: c.Hostname, Scrapes: func() uint64 { return c.Page.Scrapes() }, Events: c.Events, Log: c.Log.Named("accounts")}
	if c.Config.Source(flagDirectory) == config.FromDefault {
		e.Directory = file.StateDirectory(c.Lookup, "accounts")
	}
	o.Store = NewStore(e.Directory)
	var stages []exporter.Stage
	if board := c.Engine.Processes(); board != nil {
		p := owner.NewProcesses(board, func() {}, o.Log)
		c.Engine.ReadProcesses(true)
		o.Processes, stages = p, append(stages, exporter.Stage{Name: "processes of accounts", Run: p.Run})
	}
	if e.PodEvents {
		p, err := newPodEvents(&c)
		if err != nil {
			return nil, nil, fmt.Errorf("--%s is for a pod of Kubernetes: %w", flagPodEvents, err)
		}
		o.PodEvents, stages = p, append(stages, exporter.Stage{Name: "events of pods that have ended", Run: p.Run})
	}
	l := New(o)
	l.Restore(time.Now())
	c.Rows.Follow(l)
	c.Registry.MustRegister(l)
	if e.Names == NamesJobstats {
		c.Registry.MustRegister(&jobstats{c.Board, c.Owners.Owners, c.Config.EffectiveStaleAfter(), time.Now})
	}
	api := NewAPI(l)
	if c.Config.OwnMetrics() == config.MetricsNone {
		c.Log.Warn("accounts are not on the page: --exporter-metrics leaves out all metrics of the exporter")
	}
	stages = append(stages, exporter.Stage{Name: "accounts", Run: l.Run})
	if page := e.flag("web-page"); page != "" && page != "full" { // reports name pods and jobs
		return stages, nil, nil
	}
	return stages, []exporter.Route{
		{Pattern: Prefix, Handler: api, Labels: []string{Prefix}}, {Pattern: Prefix + "/", Handler: api, Labels: []string{Prefix + "/"}},
	}, nil
}
