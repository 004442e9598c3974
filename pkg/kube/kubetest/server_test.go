package kubetest

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns the generated client: what these tests compare with is not ours.
func dial(t *testing.T, s *Server) v1.PodResourcesListerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return v1.NewPodResourcesListerClient(conn)
}

func TestTheGeneratedClientReadsIt(t *testing.T) {
	s := Start(t)
	pods := []*v1.PodResources{
		Pod("a", "p", Container("c", Devices("nvidia.com/gpu", "GPU-1", "GPU-2"))),
		Pod("b", "q", Container("d", Claim("b", "one", ClaimedDevice{Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0", CDI: []string{"k8s.gpu.nvidia.com/claim=x"}}))),
	}
	s.Set(pods...)
	s.SetAllocatable(Devices("nvidia.com/gpu", "GPU-1", "GPU-2").Entry())
	c := dial(t, s)
	list, err := c.List(t.Context(), &v1.ListPodResourcesRequest{})
	if diff := cmp.Diff(pods, list.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("list %v (-want +got):\n%s", err, diff)
	}
	able, err := c.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	if err != nil || len(able.GetDevices()) != 1 {
		t.Errorf("allocatable %v, %v", able, err)
	}
	one, err := c.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "b", PodName: "q"})
	if diff := cmp.Diff(pods[1], one.GetPodResources(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("get %v (-want +got):\n%s", err, diff)
	}
	if _, err := c.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "b", PodName: "r"}); status.Code(err) != codes.Unknown {
		t.Errorf("get of no pod: %v", err)
	}
	for m, want := range map[Method]int{List: 1, Allocatable: 1, Get: 2} {
		if got := s.Calls(m); got != want {
			t.Errorf("%d calls of %s, want %d", got, m, want)
		}
	}
	if got := s.Connections(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

func TestShuffleTellsEachDeviceAlone(t *testing.T) {
	s := Start(t)
	s.Set(Pod("a", "p", Container("c", Devices("nvidia.com/gpu", "GPU-1", "GPU-2"))))
	s.Shuffle(true)
	list, err := dial(t, s).List(t.Context(), &v1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list.PodResources[0].Containers[0].Devices {
		if d.ResourceName != "nvidia.com/gpu" || len(d.DeviceIds) != 1 {
			t.Errorf("entry %v", d)
		}
	}
	if got := len(list.PodResources[0].Containers[0].Devices); got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
}

func TestMisbehaviour(t *testing.T) {
	s := Start(t)
	c := dial(t, s)
	list := func() (codes.Code, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.List(ctx, &v1.ListPodResourcesRequest{})
		return status.Code(err), status.Convert(err).Message()
	}
	is := func(what string, want codes.Code, part string) {
		t.Helper()
		if got, message := list(); got != want || !strings.Contains(message, part) {
			t.Errorf("%s: %v %q, want %v with %q", what, got, message, want, part)
		}
	}
	is("well", codes.OK, "")
	s.On(List, Silence())
	is("silence", codes.DeadlineExceeded, "")
	s.On(List, Slow(time.Hour))
	is("slow", codes.DeadlineExceeded, "")
	s.On(List, Slow(time.Nanosecond))
	is("quick enough", codes.OK, "")
	s.On(List, Fail(codes.Unimplemented, "no"))
	is("error", codes.Unimplemented, "no")
	s.On(List, Say([]byte{0xff}))
	is("nonsense", codes.Internal, "unmarshal")
	s.On(List, nil)
	is("well again", codes.OK, "")
	s.Limit(1.0/3600, KubeletBurst)
	s.Exhaust()
	is("too many", codes.ResourceExhausted, "rate limit")
	s.Limit(0, 0)
	is("no limit", codes.OK, "")
}

func TestRestart(t *testing.T) {
	s := Start(t)
	c := dial(t, s)
	if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Kill()
	if i, err := os.Lstat(s.Socket()); err != nil || i.Mode()&os.ModeSocket == 0 {
		t.Errorf("a killed kubelet leaves its socket: %v, %v", i, err)
	}
	if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("list while down: %v", err)
	}
	s.Restart(Pod("a", "p"))
	list, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.PodResources) != 1 {
		t.Errorf("list after the restart: %v, %v", list, err)
	}
	if got := s.Connections(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
	s.Remove()
}

func TestMany(t *testing.T) {
	pods := Many(100, 20)
	n := 0
	for _, p := range pods {
		for _, c := range p.Containers {
			n += len(c.Devices)
		}
	}
	if len(pods) != 100 || n != 20 {
		t.Errorf("%d pods with %d devices, want 100 and 20", len(pods), n)
	}
}
