package main

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet tells of pods as a node's kubelet does.
type kubelet struct {
	v1.UnimplementedPodResourcesListerServer
	pods atomic.Pointer[[]*v1.PodResources]
}

// startKubelet serves until ctx is done and returns the socket.
func startKubelet(ctx context.Context, all *processes, name string) (*kubelet, string, error) {
	k, socket := &kubelet{}, filepath.Join(all.dir, name+".sock")
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, "", err
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, k)
	context.AfterFunc(ctx, s.Stop)
	all.wg.Go(func() {
		if err := s.Serve(l); err != nil {
			all.failed(err)
		}
	})
	return k, socket, nil
}

func (k *kubelet) set(pods []*v1.PodResources) { k.pods.Store(&pods) }

// List is the call that the exporter makes.
func (k *kubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	r := &v1.ListPodResourcesResponse{}
	if pods := k.pods.Load(); pods != nil {
		r.PodResources = *pods
	}
	return r, nil
}
