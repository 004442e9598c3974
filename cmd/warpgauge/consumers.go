package main

import (
	"fmt"
	"sync"

	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"

	"go.uber.org/zap"

	"warpgauge/extensions/health/consumer/amdplugin"
	"warpgauge/extensions/health/consumer/kubenode"
	"warpgauge/extensions/health/grpcsocket"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// consumers are the stages that hand on devices' health. Sockets are open when it returns.
func consumers(a *app, cfg *config.Config, table []vendor, p *pipeline, log *zap.Logger) ([]stage, error) {
	h := &cfg.Health
	if p.health == nil {
		return nil, nil
	}
	node := config.NodeName(a.lookup)
	board, makers := p.health.Board(), newMakers(table, p.engine.Board().Load)
	ofAMD := func(d *collector.Device) bool { return makers.of(d) == field.VendorAMD.Name }
	var out []stage
	if h.AMDSocket != "" {
		s := grpcsocket.New(h.AMDSocket, amdplugin.New(board, ofAMD).Register, log)
		switch err := s.Listen(); {
		case err == nil:
			out = append(out, stage{name: "health for AMD's device plugin", run: s.Run, grace: shortGrace})
		case cfg.Source("health-amd-socket") > config.FromExtension:
			return nil, fmt.Errorf("--health-amd-socket: %w", err)
		default: // no flag asked for it
			log.Error("AMD's device plugin is not answered", zap.Error(err))
		}
	}
	if h.NodeCondition || h.NodeEvents || h.NodeLabels {
		kube.RouteKlog(log)
		o := kubenode.Options{Board: board, Node: node, Condition: h.NodeCondition, Events: h.NodeEvents, Log: log}
		if h.NodeLabels {
			o.Labels = kubenode.Labels{Prefix: amdplugin.LabelPrefix, Suffix: amdplugin.LabelSuffix, Of: func(s *verdict.Snapshot) map[string]string { return amdplugin.NodeLabels(s, ofAMD) }}
		}
		w, err := nodeWriter(a.build.Version, o)
		if err != nil {
			return nil, fmt.Errorf("--health-node-condition, --health-node-events and --health-node-labels are for a pod of Kubernetes: %w", err)
		}
		out = append(out, stage{name: "health of the Kubernetes node", run: w.Run, grace: shortGrace})
	}
	return out, nil
}

func nodeWriter(version string, o kubenode.Options) (*kubenode.Writer, error) {
	config, err := kube.Config("warpgauge/" + version)
	if err != nil {
		return nil, err
	}
	o.Config = config
	return kubenode.New(o)
}

// makers knows whose devices there are or were: a verdict on a device that is lost
// outlives its source.
type makers struct {
	view  func() *view.View
	names map[string]string // of vendors, by collector

	mu   sync.Mutex
	seen *view.View
	by   map[string]string // name of the vendor, by collector.Device.ID
}

func newMakers(table []vendor, current func() *view.View) *makers {
	m := &makers{view: current, names: map[string]string{}, by: map[string]string{}}
	for _, v := range table {
		if v.maker != nil {
			m.names[v.name] = v.maker.Name
		}
	}
	return m
}

// of returns the name of a device's vendor; "" if it is not known.
func (m *makers) of(d *collector.Device) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.view(); v != m.seen {
		m.seen = v
		for _, s := range v.Sources {
			for i := range s.Devices {
				m.by[s.Devices[i].ID] = m.names[s.Collector]
			}
		}
	}
	if name := m.by[d.ID]; name != "" || d.Parent == "" {
		return name
	}
	return m.by[d.Parent]
}
