package main

import (
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/owner"
)

// newAPI joins the API with what it answers from, and the flight recorder with the API.
func newAPI(version string, cfg *config.Config, table []vendor, p *pipeline, desk *lists.Desk, log *zap.Logger) *api.API {
	o := api.Options{
		Hostname:   p.hostname,
		Version:    version,
		View:       p.engine.Board().Load,
		Status:     p.engine.Status,
		Health:     p.healthSnapshot,
		NotReady:   func() []string { return reasons(cfg, table, p.engine.Status()) },
		Lists:      desk,
		Counts:     func() []exposition.Count { return p.renderer.Counts() },
		Interval:   sessionOptions(cfg, "", log).IntervalOf,
		Events:     p.events,
		States:     p.states,
		StaleAfter: cfg.EffectiveStaleAfter(),
		Logger:     log,
	}
	if p.history != nil { // a nil *History in the interface would not be nil
		o.History, o.HistoryAge = p.history, cfg.History.Age
	}
	if p.owners != nil && cfg.Web.Page != config.PageAnonymous {
		o.Users = p.owners.named
	}
	if p.engine.Processes() != nil && cfg.Web.Page == config.PageFull {
		v := &viewedProcesses{owners: p.owners, list: owner.NewListing(p.engine.Processes())}
		o.Processes = v.of
		if !cfg.Kubernetes.ProcessValuesWanted() {
			v.read = p.engine.readProcesses
			o.Viewed = v.viewed
		}
	}
	var out *api.API
	switch rec := &cfg.Recorder; {
	case rec.Directory == "":
	case p.history == nil:
		log.Warn("nothing is recorded, because there is no history", zap.String("directory", rec.Directory))
	default:
		names := exposition.Options{
			Hostname: p.hostname, HostnameLabel: cfg.HostnameLabel, OldNamespace: cfg.OldNamespace, ReplaceBlanksInModel: cfg.ReplaceBlanks,
		}
		if p.owners != nil && cfg.Web.Page != config.PageAnonymous {
			names.Owners = p.owners.keeper
		}
		p.recorder = recorder.New(recorder.Options{
			Directory: rec.Directory, Before: rec.Before, After: rec.After, Files: rec.Files, Bytes: rec.Bytes,
			Hostname: p.hostname, Version: version,
			Board: p.engine.Board(), History: p.history, Events: p.bus, Log: p.events, Node: func() *apiv1.Devices { return out.Devices() },
			Health: func() *apiv1.Health { return out.Health() },
			Page:   names, Registerer: p.registry, Logger: log,
		})
		if cfg.Web.Page == config.PageFull {
			o.Recorder = p.recorder
		}
	}
	out = api.New(o)
	return out
}

// named returns the users of a device as the API names them.
func (o *owners) named(d *collector.Device) (out []apiv1.User) {
	for _, u := range o.keeper.Users(d) {
		out = append(out, apiv1.User{Namespace: u.Namespace, Pod: u.Pod, PodUID: u.PodUID, Container: u.Container, Job: u.Job})
	}
	return out
}

// viewTimeout is how long processes are read after a client has last asked for them.
const viewTimeout = time.Minute

// viewedProcesses are the processes on devices, which are read while clients ask for them.
type viewedProcesses struct {
	owners *owners // nil if pods are not known
	list   *owner.Listing
	read   func(bool)

	mu  sync.Mutex
	end *time.Timer // nil: they are not read
}

// viewed has processes read from now on, for viewTimeout.
func (v *viewedProcesses) viewed() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.end != nil && v.end.Stop() {
		v.end.Reset(viewTimeout)
		return
	}
	v.read(true)
	var end *time.Timer
	end = time.AfterFunc(viewTimeout, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.end == end { // else a client asked when the time was over
			v.end = nil
			v.read(false)
		}
	})
	v.end = end
}

// of returns the processes on a device as the API names them.
func (v *viewedProcesses) of(d *collector.Device) (out []apiv1.Process) {
	for _, p := range v.list.Of(d.ID, time.Now()) {
		one := apiv1.Process{PID: p.PID, Name: p.Name, Job: p.Job, Memory: number(p.Memory), Busy: number(p.Process.Busy)}
		if v.owners != nil {
			one.Pod = v.owners.keeper.Container(p.PodUID, p.ContainerID)
		}
		out = append(out, one)
	}
	return out
}

// number is nil for what is not known.
func number(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}
