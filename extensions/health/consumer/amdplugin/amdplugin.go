// Package amdplugin answers AMD's device plugin for Kubernetes, which asks AMD's exporter
// on a Unix socket which GPUs must not be given to pods. It reads the health.Board and
// nothing else.
//
// The plugin compares the field Device with its own ids: the PCI address as the kernel
// writes it, or the platform device of a partition but the first. Since June 2026
// (ROCm/k8s-device-plugin cb9116fc) only "unhealthy" counts; before, and in plugins made
// from it, everything but "healthy" did. A device that is not in the list is left to the
// plugin's own check in all of them. So the list leaves out a device without a verdict,
// and a degraded device that works counts as healthy.
package amdplugin

import (
	"cmp"
	"context"
	"slices"

	"warpgauge/pkg/verdict"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// The Go code next to gpumetricssvc.proto, which is AMD's contract and does not change, is from
//
//	protoc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. gpumetricssvc.proto

// olderName is the service's name in the device plugin. The messages are the same.
const olderName = "metricssvc.MetricsService"

// What the field Health says.
const (
	healthy   = "healthy"
	unhealthy = "unhealthy"
)

// Service answers calls.
type Service struct {
	gpumetricssvc.UnimplementedMetricsServiceServer
	board *verdict.Board
	owns  func(collector string) bool
}

// New returns a Service for the devices of collectors that owns says read AMD's.
func New(board *verdict.Board, owns func(collector string) bool) *Service {
	return &Service{board: board, owns: owns}
}

// Register adds the service to a server, under both of its names.
func (s *Service) Register(to grpc.ServiceRegistrar) {
	gpumetricssvc.RegisterMetricsServiceServer(to, s)
	older := gpumetricssvc.MetricsService_ServiceDesc
	older.ServiceName = olderName
	to.RegisterService(&older, s)
}

// List implements gpumetricssvc.MetricsServiceServer.
func (s *Service) List(context.Context, *emptypb.Empty) (*gpumetricssvc.GPUStateResponse, error) {
	all, err := s.states()
	return &gpumetricssvc.GPUStateResponse{GPUState: all}, err
}

// LabelPrefix begins the labels that AMD's exporter gives to a node of Kubernetes, one for each
// GPU that is unhealthy; LabelSuffix ends them (pkg/exporter/utils/node_labeller.go of
// https://github.com/ROCm/device-metrics-exporter).
const (
	LabelPrefix = "metricsexporter.amd.com.gpu."
	LabelSuffix = ".state"
)

// NodeLabels are those labels for the devices of collectors that owns says read AMD's.
func NodeLabels(snapshot *verdict.Snapshot, owns func(collector string) bool) map[string]string {
	out := map[string]string{}
	for _, g := range states(snapshot, owns) {
		if g.Health == unhealthy {
			out[LabelPrefix+g.ID+LabelSuffix] = unhealthy
		}
	}
	return out
}

// GetGPUState implements gpumetricssvc.MetricsServiceServer.
func (s *Service) GetGPUState(_ context.Context, asked *gpumetricssvc.GPUGetRequest) (*gpumetricssvc.GPUStateResponse, error) {
	all, err := s.states()
	all = slices.DeleteFunc(all, func(g *gpumetricssvc.GPUState) bool { return !slices.Contains(asked.GetID(), g.GetID()) })
	return &gpumetricssvc.GPUStateResponse{GPUState: all}, err
}

// SetError implements gpumetricssvc.MetricsServiceServer. It refuses to simulate errors.
func (s *Service) SetError(context.Context, *gpumetricssvc.GPUErrorRequest) (*gpumetricssvc.GPUErrorResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "errors cannot be simulated")
}

func (s *Service) states() ([]*gpumetricssvc.GPUState, error) {
	snapshot := s.board.Load()
	if snapshot.Version == 0 {
		return nil, status.Error(codes.Unavailable, "nothing has been judged yet")
	}
	return states(snapshot, s.owns), nil
}

// states returns the devices with a known state, each once.
func states(snapshot *verdict.Snapshot, owns func(collector string) bool) []*gpumetricssvc.GPUState {
	of := make(map[string]verdict.State, len(snapshot.Verdicts)) // by collector.Device.ID
	for i := range snapshot.Verdicts {
		of[snapshot.Verdicts[i].Device.ID] = snapshot.Verdicts[i].State
	}
	worst := map[string]verdict.State{} // by Device; of a GPU and its first partition
	var out []*gpumetricssvc.GPUState
	for i := range snapshot.Verdicts {
		d := &snapshot.Verdicts[i].Device
		id := pluginID(d)
		if id == "" || !owns(snapshot.Verdicts[i].Collector) {
			continue
		}
		before, seen := worst[id]
		worst[id] = max(before, of[d.ID], of[d.Parent]) // a part is not better than its GPU
		if !seen {
			out = append(out, &gpumetricssvc.GPUState{ID: index(d), UUID: d.UUID, Device: id})
		}
	}
	out = slices.DeleteFunc(out, func(g *gpumetricssvc.GPUState) bool { return worst[g.Device] == verdict.Unknown })
	for _, g := range out {
		g.Health = healthy
		if worst[g.Device] == verdict.Failed {
			g.Health = unhealthy
		}
	}
	return out
}

// pluginID is how the device plugin calls a device; "" if it does not know it.
func pluginID(d *collector.Device) string {
	if d.Level != field.GPU && d.Level != field.Instance {
		return ""
	}
	return cmp.Or(d.Alias, d.SysfsPCI())
}

// index is the number of a GPU, with that of the partition if there are several.
func index(d *collector.Device) string {
	if d.Level == field.Instance && d.Alias != "" {
		return d.GPU + "." + d.Instance.ID
	}
	return d.GPU
}
