package main

import (
	"context"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet lists pods as a node's kubelet does.
type kubelet struct {
	v1.UnimplementedPodResourcesListerServer
	pods []*v1.PodResources
}

// startKubelet serves until ctx is done and returns the socket.
func startKubelet(ctx context.Context, all *processes, n *node) (string, error) {
	socket := filepath.Join(all.dir, n.name+".sock")
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return "", err
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, &kubelet{pods: n.pods})
	context.AfterFunc(ctx, s.Stop)
	all.wg.Go(func() {
		if err := s.Serve(l); err != nil {
			all.failed(err)
		}
	})
	return socket, nil
}

// List implements the pod-resources API.
func (k *kubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return &v1.ListPodResourcesResponse{PodResources: k.pods}, nil
}
