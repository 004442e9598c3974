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

// TestGeneratedClient reads the kubelet with a client that is not ours, well, misbehaving, and over a restart.
func TestGeneratedClient(t *testing.T) {
	s := Start(t)
	conn, err := grpc.NewClient("unix://"+s.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := v1.NewPodResourcesListerClient(conn)
	pods := []*v1.PodResources{
		Pod("a", "p", Container("c", Devices("nvidia.com/gpu", "GPU-1", "GPU-2"))),
		Pod("b", "q", Container("d", Claim("b", "one", ClaimedDevice{Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0"}))),
	}
	s.Set(pods...)
	list := func(what string, want codes.Code, part string) []*v1.PodResources {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		list, err := c.List(ctx, &v1.ListPodResourcesRequest{})
		if got := status.Convert(err); got.Code() != want || !strings.Contains(got.Message(), part) {
			t.Errorf("%s: %v, want %v with %q", what, err, want, part)
		}
		return list.GetPodResources()
	}
	if diff := cmp.Diff(pods, list("well", codes.OK, ""), protocmp.Transform()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	s.On(Silence())
	list("silence", codes.DeadlineExceeded, "")
	s.On(Fail(codes.Unimplemented, "no"))
	list("error", codes.Unimplemented, "no")
	s.On(Say([]byte{0xff}))
	list("nonsense", codes.Internal, "unmarshal")
	s.On(nil)
	s.Shuffle(true)
	if got := list("shuffled", codes.OK, "")[0].Containers[0].Devices; len(got) != 2 || len(got[0].DeviceIds) != 1 {
		t.Errorf("devices %v, want an entry for each", got)
	}
	if calls, conns := s.Calls(), s.Connections(); calls != 5 || conns != 1 {
		t.Errorf("%d calls over %d connections, want 5 over 1", calls, conns)
	}

	s.Kill()
	s.Kill()
	if i, err := os.Lstat(s.Socket()); err != nil || i.Mode()&os.ModeSocket == 0 {
		t.Errorf("a killed kubelet leaves its socket: %v, %v", i, err)
	}
	list("down", codes.Unavailable, "")
	s.Restart(Pod("a", "p"))
	after, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(after.PodResources) != 1 || s.Connections() != 2 {
		t.Errorf("after the restart: %v, %v, %d connections", after, err, s.Connections())
	}
	s.Remove()
}
