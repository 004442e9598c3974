package amdplugin_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"

	"warpgauge/extensions/health/consumer/amdplugin"
	"warpgauge/extensions/health/consumer/amdplugin/gpumetricssvc"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// TestProto compares names and numbers with AMD's published files: metricssvc.proto in ROCm/k8s-device-plugin (7ccad637, and
// ed764684 of August 2026) and gpumetricssvc.proto in ROCm/device-metrics-exporter.
func TestProto(t *testing.T) {
	for message, want := range map[string]string{
		"GPUState": "ID=1 UUID=2 Health=3 AssociatedWorkload=4… Device=5", "GPUGetRequest": "ID=1…", "GPUStateResponse": "GPUState=1…",
	} {
		var got []string
		fields := gpumetricssvc.File_gpumetricssvc_proto.Messages().ByName(protoreflect.Name(message)).Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			text := fmt.Sprintf("%s=%d", f.Name(), f.Number())
			if f.IsList() {
				text += "…"
			}
			got = append(got, text)
		}
		testkit.Equal(t, message, want, strings.Join(got, " "))
	}
}

func gpu(index, pci string, s events.State) events.Verdict {
	id := "GPU-" + index
	return events.Verdict{Device: collector.Device{ID: id, UUID: id, Level: field.GPU, GPU: index, PCIBusID: pci}, Collector: "rocm", State: s}
}

func partition(of events.Verdict, number, alias string, s events.State) events.Verdict {
	d := of.Device
	d.Parent, d.ID, d.Level, d.Alias, d.Instance.ID = d.ID, d.ID+"/"+number, field.Instance, alias, number
	return events.Verdict{Device: d, Collector: of.Collector, State: s}
}

// node returns a GPU in each state, two divided GPUs, and devices that the plugin must not see.
func node() *events.Snapshot {
	foreign := gpu("9", "00000000:99:00.0", events.Failed)
	foreign.Collector = "nvml"
	link := gpu("0", "00000000:19:00.0", events.Failed)
	link.Device.ID, link.Device.Parent, link.Device.Level = "GPU-0/link0", "GPU-0", field.Link
	drained := gpu("8", "00000000:DD:00.0", events.Degraded)
	drained.Action = events.ActionDrain
	divided, broken := gpu("4", "00000000:9D:00.0", events.OK), gpu("5", "00000000:BD:00.0", events.Failed)
	return &events.Snapshot{Version: 1, Verdicts: []events.Verdict{
		gpu("0", "00000000:19:00.0", events.OK), gpu("1", "00000000:3B:00.0", events.Degraded),
		gpu("2", "00000000:5D:00.0", events.Unknown), gpu("3", "00010000:7D:00.0", events.Failed),
		divided, partition(divided, "0", "", events.OK), partition(divided, "1", "amdgpu_xcp_0", events.Failed), partition(divided, "2", "amdgpu_xcp_1", events.OK),
		broken, partition(broken, "0", "", events.OK), partition(broken, "1", "amdgpu_xcp_2", events.Unknown),
		gpu("6", "", events.Failed), drained, foreign, link,
	}}
}

// TestList calls the service under both names.
func TestList(t *testing.T) {
	var board events.Board
	server, wire := grpc.NewServer(), bufconn.Listen(1<<16)
	amdplugin.New(&board, isAMD).Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(wire) }()
	t.Cleanup(func() { server.Stop(); <-served })
	conn := testkit.Get(grpc.NewClient("passthrough:///amd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return wire.DialContext(ctx) })))(t)
	t.Cleanup(func() { _ = conn.Close() })
	call := func(service, method string, request proto.Message) ([]*gpumetricssvc.GPUState, error) {
		var answer gpumetricssvc.GPUStateResponse
		err := conn.Invoke(t.Context(), "/"+service+".MetricsService/"+method, request, &answer)
		return answer.GetGPUState(), err
	}
	state := func(id, uuid, device, health string) *gpumetricssvc.GPUState {
		return &gpumetricssvc.GPUState{ID: id, UUID: uuid, Device: device, Health: health}
	}
	want := []*gpumetricssvc.GPUState{
		state("0", "GPU-0", "0000:19:00.0", "healthy"),
		state("1", "GPU-1", "0000:3b:00.0", "healthy"),
		state("3", "GPU-3", "00010000:7d:00.0", "unhealthy"),
		state("4", "GPU-4", "0000:9d:00.0", "healthy"),
		state("4.1", "GPU-4", "amdgpu_xcp_0", "unhealthy"),
		state("4.2", "GPU-4", "amdgpu_xcp_1", "healthy"),
		state("5", "GPU-5", "0000:bd:00.0", "unhealthy"),
		state("5.1", "GPU-5", "amdgpu_xcp_2", "unhealthy"),
		state("8", "GPU-8", "0000:dd:00.0", "unhealthy"),
	}
	for _, service := range []string{"gpumetricssvc", "metricssvc"} {
		board.Store(&events.Snapshot{})
		if _, err := call(service, "List", &emptypb.Empty{}); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: before anything is judged: %v", service, err)
		}
		board.Store(node())
		got, err := call(service, "List", &emptypb.Empty{})
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%s: List: %v (-want +got):\n%s", service, err, diff)
		}
		got, err = call(service, "GetGPUState", &gpumetricssvc.GPUGetRequest{ID: []string{"3", "4.2", "7"}})
		if diff := cmp.Diff([]*gpumetricssvc.GPUState{want[2], want[5]}, got, protocmp.Transform()); diff != "" || err != nil {
			t.Errorf("%s: GetGPUState: %v (-want +got):\n%s", service, err, diff)
		}
		if _, err := call(service, "SetError", &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: SetError: %v", service, err)
		}
	}
}

func isAMD(collector string) bool { return collector == "rocm" }

// TestNodeLabels expects the label of docs/metrics/health.md in ROCm/gpu-operator.
func TestNodeLabels(t *testing.T) {
	got := amdplugin.NodeLabels(node(), isAMD)
	want := map[string]string{}
	for _, id := range []string{"3", "4.1", "5", "5.1", "8"} {
		want["metricsexporter.amd.com.gpu."+id+".state"] = "unhealthy"
	}
	testkit.Equal(t, "labels", want, got)
}
