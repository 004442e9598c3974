package kubetest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
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
