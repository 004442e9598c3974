package kubetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that every server has
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Behaviour replaces the API's answer to a call. It may call answer to get the normal one. ctx ends with the call or
// with the kubelet. It returns an API message or Raw.
type Behaviour func(ctx context.Context, answer func() any) (any, error)

// Raw is a message in wire format, whatever it contains.
type Raw []byte

// Silence never answers.
func Silence() Behaviour {
	return func(ctx context.Context, _ func() any) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// Slow answers after a while.
func Slow(d time.Duration) Behaviour {
	return func(ctx context.Context, answer func() any) (any, error) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return answer(), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Fail answers with an error.
func Fail(code codes.Code, message string) Behaviour {
	return func(context.Context, func() any) (any, error) { return nil, status.Error(code, message) }
}

// Say answers with bytes that need not be a valid message.
func Say(message []byte) Behaviour {
	return func(context.Context, func() any) (any, error) { return Raw(message), nil }
}

// interceptor counts, limits and applies Behaviours.
func (s *Server) interceptor(in *instance) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		behave, allowed := s.count(Method(path.Base(info.FullMethod)))
		if !allowed {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit") // as the kubelet says it
		}
		if behave == nil {
			return handler(ctx, req)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-in.dying:
				cancel()
			case <-ctx.Done():
			}
		}()
		var failure error
		out, err := behave(ctx, func() any {
			var out any
			out, failure = handler(ctx, req)
			return out
		})
		if failure != nil {
			return nil, failure
		}
		return out, err
	}
}

// api is the API without faults.
type api struct {
	v1.UnimplementedPodResourcesListerServer
	s *Server
}

// List implements the API.
func (a api) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return a.s.list(), nil
}

// GetAllocatableResources implements the API.
func (a api) GetAllocatableResources(context.Context, *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	return a.s.able(), nil
}

// Get implements the API.
func (a api) Get(_ context.Context, r *v1.GetPodResourcesRequest) (*v1.GetPodResourcesResponse, error) {
	p := a.s.pod(r.PodNamespace, r.PodName)
	if p == nil {
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
	}
	return &v1.GetPodResourcesResponse{PodResources: p}, nil
}

// codec is gRPC's own codec, with Raw passed through.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(Raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return encoding.GetCodecV2("proto").Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	return encoding.GetCodecV2("proto").Unmarshal(data, v)
}

// shuffled splits devices into one entry each, in random order.
func shuffled(devices []*v1.ContainerDevices) []*v1.ContainerDevices {
	var out []*v1.ContainerDevices
	for _, d := range devices {
		for _, id := range d.DeviceIds {
			out = append(out, &v1.ContainerDevices{ResourceName: d.ResourceName, DeviceIds: []string{id}, Topology: d.Topology})
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] }) //nolint:gosec // any order will do
	return out
}
