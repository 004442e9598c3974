package extension

import (
	"fmt"

	"go.uber.org/zap"

	"warpgauge/extensions/health/consumer/amdplugin"
	"warpgauge/extensions/health/consumer/kubenode"
	"warpgauge/extensions/health/grpcsocket"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
)

// consumers returns the stages that report health to other systems. Their sockets are open when it returns.
func (s *Settings) consumers(c exporter.Core) ([]exporter.Stage, error) {
	isAMD := func(collector string) bool { return c.Engine.Vendor(collector) == field.VendorAMD }
	var out []exporter.Stage
	if s.AMDSocket != "" {
		socket, err := grpcsocket.Listen(s.AMDSocket, amdplugin.New(c.Verdicts, isAMD).Register, c.Log)
		switch {
		case err == nil:
			out = append(out, exporter.Stage{Name: "health for AMD's device plugin", Run: socket.Run})
		case c.Config.Source(flagAMDSocket) > config.FromExtension:
			return nil, fmt.Errorf("--%s: %w", flagAMDSocket, err)
		default: // no flag requests it
			c.Log.Error("cannot answer AMD's device plugin", zap.Error(err))
		}
	}
	if s.NodeCondition || s.NodeEvents || s.NodeLabels {
		o := kubenode.Options{Board: c.Verdicts, Node: config.NodeName(c.Lookup), Condition: s.NodeCondition, Events: s.NodeEvents, Log: c.Log}
		if s.NodeLabels {
			o.Labels = func(s *events.Snapshot) map[string]string { return amdplugin.NodeLabels(s, isAMD) }
			o.LabelPrefix, o.LabelSuffix = amdplugin.LabelPrefix, amdplugin.LabelSuffix
		}
		var w *kubenode.Writer
		var err error
		if o.Config, err = kube.Config("warpgauge/" + c.Version); err == nil {
			w, err = kubenode.New(o)
		}
		if err != nil {
			return nil, fmt.Errorf("--health-node-condition, --health-node-events and --health-node-labels are for a pod of Kubernetes: %w", err)
		}
		out = append(out, exporter.Stage{Name: "health of the Kubernetes node", Run: w.Run})
	}
	return out, nil
}
