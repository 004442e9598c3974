package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func (n *node) startPlugins() string {
	out := n.command("", n.dir, filepath.Join(n.repo, "bin/warpgauge"), "devices", "--enable-only=fake")
	for _, word := range strings.Fields(out) { // UUIDs of whole GPUs in the order of their indexes
		if word = strings.Trim(word, `",`); strings.HasPrefix(word, "GPU-") && !slices.Contains(n.uuids, word) {
			n.uuids = append(n.uuids, word)
		}
	}
	if len(n.uuids) <= sliced {
		fail("the exporter simulates %d GPUs: %s", len(n.uuids), out)
	}
	// The kubelet refuses a registration while it starts.
	for _, p := range []*devicePlugin{
		{resource: gpu, ids: n.uuids[:wholeGPUs]},
		{resource: sharedGPU, ids: []string{n.uuids[sliced] + "::0", n.uuids[sliced] + "::1"}},
	} {
		n.wait(30*time.Second, func() { must(p.start(n.ctx)) })
		n.wait(30*time.Second, func() {
			have := n.self().Status.Allocatable[corev1.ResourceName(p.resource)]
			if have.Value() != int64(len(p.ids)) {
				fail("the node offers %d of %s", have.Value(), p.resource)
			}
		})
	}
	return ""
}

// devicePlugin offers simulated GPUs to the kubelet as NVIDIA's plugin offers real ones: by UUID, or by "UUID::replica"
// for a GPU shared in time slices.
type devicePlugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	resource string
	ids      []string
}

// start serves and registers the plugin.
func (p *devicePlugin) start(ctx context.Context) error {
	socket := strings.NewReplacer("/", "-", ".", "-").Replace(p.resource) + ".sock"
	_ = os.Remove(deviceplugin.DevicePluginPath + socket)
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "unix", deviceplugin.DevicePluginPath+socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(l) }() // ends with the program
	conn, err := grpc.NewClient("unix://"+deviceplugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err = deviceplugin.NewRegistrationClient(conn).Register(ctx, &deviceplugin.RegisterRequest{
		Version: deviceplugin.Version, Endpoint: socket, ResourceName: p.resource,
	})
	if err != nil {
		server.Stop()
		return fmt.Errorf("register %s with the kubelet: %w", p.resource, err)
	}
	return nil
}

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *devicePlugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	out := &deviceplugin.ListAndWatchResponse{}
	for _, id := range p.ids {
		out.Devices = append(out.Devices, &deviceplugin.Device{ID: id, Health: deviceplugin.Healthy})
	}
	if err := stream.Send(out); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *devicePlugin) Allocate(_ context.Context, in *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	out := &deviceplugin.AllocateResponse{}
	for _, c := range in.ContainerRequests {
		out.ContainerResponses = append(out.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(c.DevicesIds, ",")},
		})
	}
	return out, nil
}
