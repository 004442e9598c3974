package extension

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
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// consumers returns the stages that hand on devices' health. Sockets are open when it returns.
func (s *Settings) consumers(c exporter.Core) ([]exporter.Stage, error) {
	amd := newMakers(c.Engine)
	var out []exporter.Stage
	if s.AMDSocket != "" {
		socket := grpcsocket.New(s.AMDSocket, amdplugin.New(c.Verdicts, amd.isAMD).Register, c.Log)
		switch err := socket.Listen(); {
		case err == nil:
			out = append(out, stage("health for AMD's device plugin", socket.Run))
		case c.Config.Source(flagAMDSocket) > config.FromExtension:
			return nil, fmt.Errorf("--%s: %w", flagAMDSocket, err)
		default: // no flag asked for it
			c.Log.Error("cannot answer AMD's device plugin", zap.Error(err))
		}
	}
	if s.NodeCondition || s.NodeEvents || s.NodeLabels {
		kube.RouteKlog(c.Log)
		o := kubenode.Options{Board: c.Verdicts, Node: config.NodeName(c.Lookup), Condition: s.NodeCondition, Events: s.NodeEvents, Log: c.Log}
		if s.NodeLabels {
			o.Labels = kubenode.Labels{Prefix: amdplugin.LabelPrefix, Suffix: amdplugin.LabelSuffix, Of: func(s *verdict.Snapshot) map[string]string { return amdplugin.NodeLabels(s, amd.isAMD) }}
		}
		w, err := nodeWriter(c.Version, o)
		if err != nil {
			return nil, fmt.Errorf("--health-node-condition, --health-node-events and --health-node-labels are for a pod of Kubernetes: %w", err)
		}
		out = append(out, stage("health of the Kubernetes node", w.Run))
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

// makers remembers the vendors of devices: a verdict on a lost device outlives its source.
type makers struct {
	engine interface {
		Board() *view.Board
		Vendor(collector string) *field.Vendor
	}

	mu   sync.Mutex
	seen *view.View
	by   map[string]*field.Vendor // by collector.Device.ID
}

func newMakers(e *exporter.Engine) *makers {
	return &makers{engine: e, by: map[string]*field.Vendor{}}
}

// isAMD reports whether AMD has made a device.
func (m *makers) isAMD(d *collector.Device) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.engine.Board().Load(); v != m.seen {
		m.seen = v
		for _, s := range v.Sources {
			for i := range s.Devices {
				m.by[s.Devices[i].ID] = m.engine.Vendor(s.Collector)
			}
		}
	}
	maker := m.by[d.ID]
	if maker == nil && d.Parent != "" {
		maker = m.by[d.Parent]
	}
	return maker == field.VendorAMD
}
