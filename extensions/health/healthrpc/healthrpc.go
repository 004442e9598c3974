// Package healthrpc serves verdicts on devices over gRPC: the service of
// healthv1/health.proto. Each stream takes the newest snapshot from the health.Board when
// its client has read the one before, so nothing is queued and no client waits for another.
package healthrpc

import (
	"context"
	"errors"
	"time"

	"warpgauge/pkg/verdict"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"warpgauge/extensions/health/healthrpc/healthv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

//go:generate go run -C ../../../test/tools/proto . ../../../extensions/health/healthrpc/healthv1/health.proto warpgauge/health/v1/health.proto

// heartbeat is the longest silence of a stream. health.proto promises it.
const heartbeat = 10 * time.Second

// Options of New. All but the Board may be left out.
type Options struct {
	Board    *verdict.Board
	Node     string // in Kubernetes
	Hostname string
	Version  string                         // of the exporter
	Vendor   func(*collector.Device) string // "NVIDIA", "AMD"; "": not known
}

// Service answers calls.
type Service struct {
	healthv1.UnimplementedHealthServiceServer
	o Options
}

// New returns a Service.
func New(o Options) *Service { return &Service{o: o} }

// Register adds the service to a server.
func (s *Service) Register(to grpc.ServiceRegistrar) { healthv1.RegisterHealthServiceServer(to, s) }

// Get implements healthv1.HealthServiceServer.
func (s *Service) Get(context.Context, *healthv1.GetRequest) (*healthv1.GetResponse, error) {
	snapshot := s.o.Board.Load()
	if snapshot.Version == 0 {
		return nil, status.Error(codes.Unavailable, "nothing has been judged yet")
	}
	return &healthv1.GetResponse{Snapshot: s.snapshot(snapshot)}, nil
}

// Watch implements healthv1.HealthServiceServer.
func (s *Service) Watch(_ *healthv1.WatchRequest, to grpc.ServerStreamingServer[healthv1.WatchResponse]) error {
	ctx, version := to.Context(), uint64(0)
	for {
		next, err := s.next(ctx, version)
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if next == nil {
			if version == 0 {
				continue // no snapshot that a heartbeat could confirm
			}
			beat := &healthv1.Heartbeat{Version: version, Time: timestamppb.Now()}
			err = to.Send(&healthv1.WatchResponse{Update: &healthv1.WatchResponse_Heartbeat{Heartbeat: beat}})
		} else {
			version = next.Version
			err = to.Send(&healthv1.WatchResponse{Update: &healthv1.WatchResponse_Snapshot{Snapshot: s.snapshot(next)}})
		}
		if err != nil {
			return err
		}
	}
}

// next waits for a snapshot above a version. nil: it is time for a heartbeat.
func (s *Service) next(ctx context.Context, version uint64) (*verdict.Snapshot, error) {
	limited, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	next, err := s.o.Board.After(limited, version)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return next, err
}

func (s *Service) snapshot(from *verdict.Snapshot) *healthv1.Snapshot {
	out := &healthv1.Snapshot{
		Version: from.Version, Time: timestamp(from.Time),
		Node: &healthv1.Node{Name: s.o.Node, Hostname: s.o.Hostname, ExporterVersion: s.o.Version},
	}
	for i := range from.Verdicts {
		v := &from.Verdicts[i]
		d := &healthv1.DeviceHealth{
			Device: s.device(&v.Device), State: states[v.State], Reason: v.Reason, Message: v.Text,
			RecommendedAction: actions[v.Action], Since: timestamp(v.Since),
		}
		for j := range v.Conditions {
			d.Conditions = append(d.Conditions, condition(&v.Conditions[j]))
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

func (s *Service) device(d *collector.Device) *healthv1.Device {
	out := &healthv1.Device{
		Id: d.ID, ParentId: d.Parent, Kind: healthv1.Kind_KIND_OTHER, Index: d.GPU, Uuid: d.UUID, PciBusId: d.SysfsPCI(),
		DeviceNode: d.Node, Model: d.Model, PluginId: d.Alias,
	}
	if kind, ok := kinds[d.Level]; ok {
		out.Kind = kind
	}
	if s.o.Vendor != nil {
		out.Vendor = s.o.Vendor(d)
	}
	if i := d.Instance; i != (collector.Instance{}) {
		out.Instance = &healthv1.Instance{Profile: i.Profile, Id: i.ID, ComputeId: i.ComputeID, Uuid: i.UUID}
	}
	return out
}

func condition(c *verdict.Condition) *healthv1.Condition {
	out := &healthv1.Condition{
		Reason: c.Reason, State: states[c.State], RecommendedAction: actions[c.Action], Message: c.Text,
		Since: timestamp(c.Since), LastSeen: timestamp(c.Last),
	}
	for _, e := range c.Evidence {
		out.Evidence = append(out.Evidence, &healthv1.Evidence{Time: timestamp(e.Time), Source: e.Source, Text: e.Text})
	}
	return out
}

// timestamp is nil for a time that is not known.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

var (
	kinds = map[field.Level]healthv1.Kind{
		field.GPU: healthv1.Kind_KIND_GPU, field.Instance: healthv1.Kind_KIND_INSTANCE,
		field.ComputeInstance: healthv1.Kind_KIND_COMPUTE_INSTANCE, field.Switch: healthv1.Kind_KIND_SWITCH,
	}
	states = map[verdict.State]healthv1.State{
		verdict.OK: healthv1.State_STATE_OK, verdict.Unknown: healthv1.State_STATE_UNKNOWN,
		verdict.Degraded: healthv1.State_STATE_DEGRADED, verdict.Failed: healthv1.State_STATE_FAILED,
	}
	actions = map[verdict.Action]healthv1.RecommendedAction{
		verdict.ActionNone:    healthv1.RecommendedAction_RECOMMENDED_ACTION_NONE,
		verdict.ActionDrain:   healthv1.RecommendedAction_RECOMMENDED_ACTION_DRAIN,
		verdict.ActionReset:   healthv1.RecommendedAction_RECOMMENDED_ACTION_RESET_GPU,
		verdict.ActionReboot:  healthv1.RecommendedAction_RECOMMENDED_ACTION_REBOOT,
		verdict.ActionReplace: healthv1.RecommendedAction_RECOMMENDED_ACTION_REPLACE,
		verdict.ActionContact: healthv1.RecommendedAction_RECOMMENDED_ACTION_CONTACT_VENDOR,
	}
)
