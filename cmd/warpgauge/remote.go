package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/absence"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// delivery is how lists come from a server.
type delivery struct {
	*remote.Manager
	cfg     *config.Config
	version string
	log     *zap.Logger

	p *pipeline // set before anything is delivered
	r *reloader
	f facts

	mu      sync.Mutex
	changed chan struct{}
}

// newDelivery returns nil if no server is wanted.
func newDelivery(a *app, cfg *config.Config, csv *counters, log *zap.Logger) *delivery {
	if !cfg.Remote.Wanted() {
		return nil
	}
	var last []byte
	d := &delivery{cfg: cfg, version: a.build.Version, log: log, changed: make(chan struct{})}
	d.Manager = remote.New(remote.Options{
		Report:    cfg.Remote.Mode == config.RemoteReport,
		Directory: cfg.Remote.Directory,
		Origin:    remote.Origin(cfg.Remote.URL),
		Guard:     guardOf(&cfg.Remote),
		View: func() *view.View {
			if d.p == nil {
				return &view.View{}
			}
			return d.p.engine.Board().Load()
		},
		Measure: func() remote.Measured {
			d.p.renderer.Sync(time.Now())
			return measured(d.p.registry)
		},
		Parse: func(o *remote.Offer) (field.List, []remote.Refusal, error) {
			quiet := log
			if bytes.Equal(o.Content, last) {
				quiet = zap.NewNop() // it was logged: a refused list comes with each request
			}
			last = o.Content
			return csv.delivered(o, quiet)
		},
		Apply: func(ctx context.Context, l *remote.List) error { return d.r.deliver(ctx, l) },
		Local: func() (string, field.List) {
			l := d.r.local.Load()
			return l.Hash, l.fields
		},
		Event:  func(text string, bad bool) { d.r.report(apiv1.Event{Text: text, Bad: bad}) },
		Logger: log,
	})
	return d
}

func guardOf(c *config.Remote) remote.Guard {
	return remote.Guard{
		Bytes: c.Limits.Bytes, Fields: c.Limits.Fields, Series: c.Limits.Series, Interval: c.Limits.Interval, Cost: c.Limits.Cost,
		Profiling:      slices.Contains(c.Allow, config.AllowProfiling),
		ChangingLabels: slices.Contains(c.Allow, config.AllowChangingLabels),
	}
}

// mostWarnings bounds what is logged about one list.
const mostWarnings = 20

// delivered parses a list of a server.
func (c *counters) delivered(o *remote.Offer, log *zap.Logger) (field.List, []remote.Refusal, error) {
	in, problems, err := config.ParseDelivered(o.Content, o.Origin, o.YAML, c.cfg.DialectNames()...)
	if err != nil {
		return field.List{}, nil, err
	}
	list, more, err := c.parse(in)
	var out []remote.Refusal
	warnings := 0
	for _, p := range append(problems, more...) {
		if p.Severity == field.Error {
			out = append(out, remote.Refusal{Line: p.Line, Text: p.Message})
		} else if warnings++; warnings <= mostWarnings {
			log.Warn("list of the server: "+p.Message, place(p)...)
		}
	}
	if err != nil {
		return field.List{}, out, err
	}
	list.Fields = slices.Clone(list.Fields)
	in.YAML.ApplyInterval(list)
	at := make([]field.Problem, len(list.Fields))
	for i := range at {
		at[i].Line = list.Fields[i].Line
	}
	in.YAML.Place(in.Name, at)
	for i := range at {
		list.Fields[i].Line = at[i].Line
	}
	return list, out, nil
}

// source is where the lists come from.
func (d *delivery) source(node *remote.Node) (remote.Source, error) {
	c := &d.cfg.Remote
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err // config has checked it
	}
	if strings.HasPrefix(u.Scheme, "opamp+") {
		return d.opampSource(u, node)
	}
	return remote.NewURL(remote.URLOptions{
		URL: u, Interval: c.Interval, MaxBytes: c.Limits.Bytes, UserAgent: "warpgauge/" + d.version,
		Transport: remote.NewTransport(u, remote.Credentials{TokenFile: c.TokenFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}),
		Answered:  d.Answered, Failed: d.Unreachable,
	}), nil
}

// deliveryPatience is how long the server is not asked while collectors are being opened:
// the guard counts devices.
const deliveryPatience = 30 * time.Second

// changePoll is how often it is checked whether Node.Facts have changed.
const changePoll = 2 * time.Second

// stage runs the delivery.
func (d *delivery) stage(ctx context.Context) (stage, error) {
	hostname := d.p.hostname
	if hostname == "" {
		hostname, _ = os.Hostname() // a server can do without
	}
	vendors := fmt.Sprint(d.cfg.DCGM, d.cfg.NVML, d.cfg.ROCm) // in Kubernetes two vendors on a node have a pod each
	source, err := d.source(&remote.Node{
		InstanceID: remote.InstanceID(ctx, d.cfg.Remote.Directory, hostname, d.cfg.Web.Address, vendors), Version: d.version, Hostname: hostname, Labels: d.cfg.Remote.NodeLabels,
		Facts: d.facts, Effective: d.effective, Changed: d.changes,
	})
	if err != nil {
		return stage{}, err
	}
	return stage{name: "lists of " + remote.Origin(d.cfg.Remote.URL), grace: shortGrace, run: func(ctx context.Context) error {
		d.log.Info("lists come from a server", zap.String("server", remote.Origin(d.cfg.Remote.URL)), zap.String("mode", d.cfg.Remote.Mode), zap.Duration("interval", d.cfg.Remote.Interval))
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { _ = d.Run(ctx) }) // it returns no error
		if _, web := source.(*remote.URL); !web {
			wg.Go(func() { d.watch(ctx) })
		}
		wctx, cancel := context.WithTimeout(ctx, deliveryPatience)
		await(wctx, d.p.engine, opened)
		cancel()
		return source.Run(ctx, d.Deliver)
	}}, nil
}

// changes is remote.Node's Changed.
func (d *delivery) changes() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// watch closes changed when something has changed that a server has to know at once.
func (d *delivery) watch(ctx context.Context) {
	tick := time.NewTicker(changePoll)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		collectors, devices := components(d.p.engine.Status())
		list := d.listComponent()
		now := list.Status + d.r.service.Load().Hash
		for _, c := range slices.Concat(collectors, devices) {
			now += "\n" + c.Name + c.Status
		}
		if now != last {
			last = now
			d.mu.Lock()
			close(d.changed)
			d.changed = make(chan struct{})
			d.mu.Unlock()
		}
	}
}

// effective is the list in service.
func (d *delivery) effective() *remote.Offer {
	if l := d.InService(); l != nil {
		return &l.Offer
	}
	s := d.r.service.Load()
	return &remote.Offer{Origin: s.Source, Content: field.Format(s.fields)}
}

// answer is what the API says of the delivery.
func (d *delivery) answer() *apiv1.RemoteList {
	s := d.State()
	out := &apiv1.RemoteList{
		Mode: d.cfg.Remote.Mode, Status: s.Condition(), Text: s.Text, Since: s.Since.UTC().Truncate(time.Millisecond),
		Hash: s.Tried, Unreachable: s.Down, Unkept: s.Unkept, Local: d.r.local.Load().Hash,
	}
	for _, r := range s.Refused {
		out.Refused = append(out.Refused, apiv1.Refusal(r))
	}
	return out
}

// facts keep what a session does not say.
type facts struct {
	mu      sync.Mutex
	missed  map[string]float64 // by series, now; a session begins at 0
	before  float64            // of former sessions
	drivers []string           // the last that a list with their label has shown
}

// facts is remote.Node's.
func (d *delivery) facts() remote.Facts {
	all := d.p.engine.Status()
	s := d.r.service.Load()
	out := remote.Facts{ListHash: s.Hash, AppliedSeconds: s.Applied.Unix(), SampleSeconds: -1, List: d.listComponent()}
	out.Collectors, out.Devices = components(all)
	models, drivers := map[string]bool{}, map[string]bool{}
	seen := map[string]bool{}
	for _, c := range all {
		for i := range c.Devices {
			st := &c.Devices[i]
			if seen[st.Device.ID] {
				continue
			}
			seen[st.Device.ID] = true
			switch st.State {
			case session.Stalled:
				if st.Cause != session.CauseStarting {
					out.Stalled++
				}
			case session.Lost, session.Absent:
				out.Lost++
			}
			if st.Device.Level == field.GPU {
				out.GPUs++
				models[st.Device.Model] = true
			}
			for _, f := range st.Device.Facts {
				if desc, _, _ := field.ByName(f.Name); desc != nil && desc.Name == "DCGM_FI_DRIVER_VERSION" {
					drivers[f.Value] = true
				}
			}
		}
	}
	out.Models, out.Drivers = texts(models), texts(drivers)
	report := absence.Of(d.p.engine.Board().Load(), all, s.fields, absence.Options{StaleAfter: d.cfg.EffectiveStaleAfter(), Now: time.Now()})
	for i := range report.Devices {
		out.AbsentFields += len(absentRows(report.Devices[i].Fields))
	}
	d.f.fill(&out, d.p.registry)
	return out
}

// fill takes what the own metrics know.
func (f *facts) fill(out *remote.Facts, g prometheus.Gatherer) {
	missed := map[string]float64{}
	eachOwn(g, func(name, series string, m *dto.Metric) {
		switch name {
		case "warpgauge_exposition_series":
			out.Series = int(m.GetGauge().GetValue())
		case "warpgauge_missed_ticks_total":
			missed[series] = m.GetCounter().GetValue()
		case "warpgauge_sample_duration_seconds":
			if h := m.GetHistogram(); h.GetSampleCount() > 0 {
				out.SampleSeconds = math.Max(out.SampleSeconds, h.GetSampleSum()/float64(h.GetSampleCount()))
			}
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(out.Drivers) > 0 {
		f.drivers = out.Drivers
	}
	out.Drivers = f.drivers
	for series, was := range f.missed {
		if missed[series] < was {
			f.before += was
		}
	}
	f.missed = missed
	sum := f.before
	for _, n := range missed {
		sum += n
	}
	out.MissedTicks = uint64(sum)
}

// eachOwn calls f for each of our own metrics.
func eachOwn(g prometheus.Gatherer, f func(name, series string, m *dto.Metric)) {
	families, _ := g.Gather() // what there is
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			f(family.GetName(), strings.Join(labels, "/"), m)
		}
	}
}

// measured is what the list in service costs and makes.
func measured(g prometheus.Gatherer) remote.Measured {
	out := remote.Measured{Spent: map[string]time.Duration{}, Calls: map[string]time.Duration{}}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	eachOwn(g, func(name, series string, m *dto.Metric) {
		switch name {
		case "warpgauge_exposition_series":
			out.Series = int(m.GetGauge().GetValue())
		case "warpgauge_sample_duration_seconds":
			out.Spent[series] = seconds(m.GetHistogram().GetSampleSum())
		case "warpgauge_library_call_seconds_total":
			out.Calls[series] = seconds(m.GetCounter().GetValue())
		}
	})
	return out
}

func texts(set map[string]bool) (out []string) {
	for text := range set {
		if text != "" {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// listComponent is the delivery as a part of the node.
func (d *delivery) listComponent() remote.Component {
	s := d.State()
	c := remote.Component{Name: "list", Status: s.Condition(), Since: s.Since, Healthy: true}
	if c.Status == remote.StateRefused || c.Status == remote.StateFailed {
		c.Healthy, c.Error = false, s.Text
	}
	return c
}

// components are the collectors and GPUs as parts of the node.
func components(all []session.CollectorStatus) (collectors, devices []remote.Component) {
	for _, c := range all {
		rests := c.Cause == session.CauseReleased || c.Cause == session.CauseStandby
		one := remote.Component{Name: c.Name, Healthy: c.Up || rests || c.Cause.Quiet(), Status: "up", Since: c.Since}
		if !c.Up {
			one.Status = string(c.Cause)
		}
		if !one.Healthy {
			one.Error = c.Reason
		}
		collectors = append(collectors, one)
		for i := range c.Devices {
			st := &c.Devices[i]
			if l := st.Device.Level; l != field.GPU && l != field.Instance && l != field.ComputeInstance ||
				slices.ContainsFunc(devices, func(d remote.Component) bool { return d.Name == st.Device.ID }) {
				continue
			}
			one := remote.Component{Name: st.Device.ID, Healthy: st.State == session.Up || st.State == session.Released, Status: st.State.String(), Since: st.LastSample}
			if !one.Healthy {
				one.Error = st.Reason
			}
			devices = append(devices, one)
		}
	}
	return collectors, devices
}
