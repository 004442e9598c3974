package kubetest

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Behaviour replaces the API's answer to a call. ctx ends with the call or with the kubelet.
type Behaviour func(ctx context.Context) (any, error)

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

// Say answers with the bytes of a pod, which may be an invalid message.
func Say(pod []byte) Behaviour {
	return func(context.Context) (any, error) { return wrapperspb.Bytes(pod), nil } // it has the same field number as the list
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
