package kubetest

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that every server has
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Behaviour replaces the API's answer to a call. ctx ends with the call or with the kubelet. It returns an API message
// or Raw.
type Behaviour func(ctx context.Context) (any, error)

// Raw is a message in wire format, whatever it contains.
type Raw []byte

// Silence never answers.
func Silence() Behaviour {
	return func(ctx context.Context) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// Fail answers with an error.
func Fail(code codes.Code, message string) Behaviour {
	return func(context.Context) (any, error) { return nil, status.Error(code, message) }
}

// Say answers with bytes that need not be a valid message.
func Say(message []byte) Behaviour {
	return func(context.Context) (any, error) { return Raw(message), nil }
}

// interceptor counts calls and applies the Behaviour.
func (s *Server) interceptor(in *instance) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		behave := s.count()
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
		return behave(ctx)
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
