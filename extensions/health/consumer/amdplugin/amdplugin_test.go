package amdplugin_test

import (
	"context"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/pkg/verdict"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"warpgauge/extensions/health/consumer/amdplugin"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// plugin is a client that is made from what AMD publishes of the service, not from our
// types: names and numbers of metricssvc.proto in ROCm/k8s-device-plugin (7ccad637, and
// ed764684 of August 2026) and gpumetricssvc.proto in ROCm/device-metrics-exporter.
type plugin struct {
	t        *testing.T
	conn     *grpc.ClientConn
	service  string
	messages map[string]protoreflect.MessageDescriptor
}

// The proto's fields by message: name, number, whether there are several.
type protoField struct {
	name     string
	number   int32
	repeated bool
	message  string
}

var published = map[string][]protoField{
	"GPUState":         {{"ID", 1, false, ""}, {"UUID", 2, false, ""}, {"Health", 3, false, ""}, {"AssociatedWorkload", 4, true, ""}, {"Device", 5, false, ""}},
	"GPUGetRequest":    {{"ID", 1, true, ""}},
	"GPUStateResponse": {{"GPUState", 1, true, "GPUState"}},
}

func newPlugin(t *testing.T, pkg string, board *verdict.Board) *plugin {
	t.Helper()
	file := &descriptorpb.FileDescriptorProto{Name: proto.String(pkg + "-test.proto"), Package: &pkg, Syntax: proto.String("proto3")}
	for _, name := range slices.Sorted(maps.Keys(published)) {
		m := &descriptorpb.DescriptorProto{Name: &name}
		for _, f := range published[name] {
			d := &descriptorpb.FieldDescriptorProto{
				Name: &f.name, Number: &f.number, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			}
			if f.repeated {
				d.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			}
			if f.message != "" {
				d.Type, d.TypeName = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), proto.String("."+pkg+"."+f.message)
			}
			m.Field = append(m.Field, d)
		}
		file.MessageType = append(file.MessageType, m)
	}
	parsed, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{t: t, service: "/" + pkg + ".MetricsService/", messages: map[string]protoreflect.MessageDescriptor{}}
	for name := range published {
		p.messages[name] = parsed.Messages().ByName(protoreflect.Name(name))
	}
	server, wire := grpc.NewServer(), bufconn.Listen(1<<16)
	amdplugin.New(board, func(d *collector.Device) bool { return d.Model != "H100" }).Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(wire) }()
	t.Cleanup(func() { server.Stop(); <-served })
	p.conn, err = grpc.NewClient("passthrough:///amd", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return wire.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// call returns the GPUs of an answer, field by field.
func (p *plugin) call(method string, request proto.Message) ([]map[string]string, error) {
	answer := dynamicpb.NewMessage(p.messages["GPUStateResponse"])
	if err := p.conn.Invoke(p.t.Context(), p.service+method, request, answer); err != nil {
		return nil, err
	}
	if unknown := answer.GetUnknown(); len(unknown) > 0 {
		p.t.Errorf("%s: fields that AMD's proto does not have: %x", method, unknown)
	}
	var out []map[string]string
	list := answer.Get(answer.Descriptor().Fields().ByName("GPUState")).List()
	for i := range list.Len() {
		gpu := map[string]string{}
		list.Get(i).Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			gpu[string(f.Name())] = v.String()
			return true
		})
		out = append(out, gpu)
	}
	return out, nil
}

func (p *plugin) state(ids ...string) ([]map[string]string, error) {
	request := dynamicpb.NewMessage(p.messages["GPUGetRequest"])
	list := request.Mutable(request.Descriptor().Fields().ByName("ID")).List()
	for _, id := range ids {
		list.Append(protoreflect.ValueOfString(id))
	}
	return p.call("GetGPUState", request)
}

func gpu(index, pci string, s verdict.State) verdict.Verdict {
	id := "GPU-" + index
	return verdict.Verdict{Device: collector.Device{ID: id, UUID: id, Level: field.GPU, GPU: index, PCIBusID: pci, Model: "MI300X"}, State: s}
}

func partition(of verdict.Verdict, number, alias string, s verdict.State) verdict.Verdict {
	d := of.Device
	d.Parent, d.ID, d.Level, d.Alias, d.Instance.ID = d.ID, d.ID+"/"+number, field.Instance, alias, number
	return verdict.Verdict{Device: d, State: s}
}

// node is one with a GPU in each state, two that are divided, and what the plugin must not hear of.
func node() *verdict.Snapshot {
	foreign := gpu("9", "00000000:99:00.0", verdict.Failed)
	foreign.Device.Model = "H100"
	link := gpu("0", "00000000:19:00.0", verdict.Failed)
	link.Device.ID, link.Device.Parent, link.Device.Level = "GPU-0/link0", "GPU-0", field.Link
	divided, broken := gpu("4", "00000000:9D:00.0", verdict.OK), gpu("5", "00000000:BD:00.0", verdict.Failed)
	return &verdict.Snapshot{Version: 1, Verdicts: []verdict.Verdict{
		gpu("0", "00000000:19:00.0", verdict.OK), gpu("1", "00000000:3B:00.0", verdict.Degraded),
		gpu("2", "00000000:5D:00.0", verdict.Unknown), gpu("3", "00010000:7D:00.0", verdict.Failed),
		divided, partition(divided, "0", "", verdict.OK), partition(divided, "1", "amdgpu_xcp_0", verdict.Failed), partition(divided, "2", "amdgpu_xcp_1", verdict.OK),
		broken, partition(broken, "0", "", verdict.OK), partition(broken, "1", "amdgpu_xcp_2", verdict.Unknown),
		gpu("6", "", verdict.Failed), foreign, link,
	}}
}

func TestList(t *testing.T) {
	for _, pkg := range []string{"gpumetricssvc", "metricssvc"} {
		t.Run(pkg, func(t *testing.T) {
			var board verdict.Board
			p := newPlugin(t, pkg, &board)
			if _, err := p.call("List", &emptypb.Empty{}); status.Code(err) != codes.Unavailable {
				t.Errorf("before anything is judged: %v", err)
			}
			board.Store(node())
			state := func(id, uuid, device, health string) map[string]string {
				return map[string]string{"ID": id, "UUID": uuid, "Device": device, "Health": health}
			}
			want := []map[string]string{
				state("0", "GPU-0", "0000:19:00.0", "healthy"),
				state("1", "GPU-1", "0000:3b:00.0", "healthy"),
				state("3", "GPU-3", "00010000:7d:00.0", "unhealthy"),
				state("4", "GPU-4", "0000:9d:00.0", "healthy"),
				state("4.1", "GPU-4", "amdgpu_xcp_0", "unhealthy"),
				state("4.2", "GPU-4", "amdgpu_xcp_1", "healthy"),
				state("5", "GPU-5", "0000:bd:00.0", "unhealthy"),
				state("5.1", "GPU-5", "amdgpu_xcp_2", "unhealthy"),
			}
			got, err := p.call("List", &emptypb.Empty{})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			got, err = p.state("3", "4.2", "7")
			if diff := cmp.Diff([]map[string]string{want[2], want[5]}, got); diff != "" || err != nil {
				t.Errorf("GetGPUState: %v (-want +got):\n%s", err, diff)
			}
			if _, err := p.call("SetError", &emptypb.Empty{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("SetError: %v", err)
			}
		})
	}
}

// TestNodeLabels: docs/metrics/health.md of ROCm/gpu-operator has the label.
func TestNodeLabels(t *testing.T) {
	got := amdplugin.NodeLabels(node(), func(d *collector.Device) bool { return d.Model == "MI300X" })
	want := map[string]string{}
	for _, id := range []string{"3", "4.1", "5", "5.1"} {
		want["metricsexporter.amd.com.gpu."+id+".state"] = "unhealthy"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// replica is how plugins that share a GPU call the second and later users of it:
// normalizeDeviceID in forks of ROCm/k8s-device-plugin.
var replica = regexp.MustCompile(`^(.+)-[0-9]+$`)

// TestPluginsRules applies the rules of the plugin, before and since June 2026, to ids in
// each form that it has: what it makes of a device that it knows nothing of is its own affair.
func TestPluginsRules(t *testing.T) {
	const own = "its own check"
	explicit := func(said string) string { // cb9116fc and later
		if said == strings.ToLower("Unhealthy") {
			return "Unhealthy"
		}
		return "Healthy"
	}
	former := func(said string) string { // 7ccad637 to fb2d42a8
		if said == strings.ToLower("Healthy") {
			return "Healthy"
		}
		return "Unhealthy"
	}
	want := map[string]string{
		"0000:19:00.0":     "Healthy",
		"0000:19:00.0-3":   "Healthy",
		"0000:3b:00.0":     "Healthy", // degraded: works
		"0000:5d:00.0":     own,       // unknown: never unhealthy
		"00010000:7d:00.0": "Unhealthy",
		"0000:9d:00.0":     "Healthy",
		"amdgpu_xcp_0":     "Unhealthy",
		"amdgpu_xcp_1":     "Healthy",
		"0000:bd:00.0-1":   "Unhealthy",
		"amdgpu_xcp_2":     "Unhealthy",
		"0000:99:00.0":     own, // not AMD's
		"0000:aa:00.0":     own, // not in any verdict
	}
	for name, rule := range map[string]func(string) string{"since June 2026": explicit, "before": former} {
		t.Run(name, func(t *testing.T) {
			var board verdict.Board
			board.Store(node())
			states, err := newPlugin(t, "metricssvc", &board).call("List", &emptypb.Empty{})
			if err != nil {
				t.Fatal(err)
			}
			said := map[string]string{}
			for _, s := range states {
				said[s["Device"]] = rule(s["Health"])
			}
			for id, want := range want {
				physical := id
				if m := replica.FindStringSubmatch(id); m != nil {
					physical = m[1]
				}
				got, ok := said[physical]
				if !ok {
					got = own
				}
				if got != want {
					t.Errorf("%s is %s, want %s", id, got, want)
				}
			}
		})
	}
}
