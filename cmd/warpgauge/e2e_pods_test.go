package main_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	kubelet "warpgauge/pkg/kube/kubetest"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// podsCSV is short, because many clients scrape it.
const podsCSV = `DCGM_FI_DEV_GPU_UTIL, gauge, Utilisation.
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DRIVER_VERSION, label, Driver
`

// withKubelet returns the flags for a node with a kubelet at socket, polled at the maximum rate.
func withKubelet(socket string, more ...string) []string {
	return append([]string{"-k", "--pod-resources-kubelet-socket=" + socket, "--pod-resources-interval=1s"}, more...)
}

// uuids returns the GPUs' UUIDs by index.
func (e *exporter) uuids(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range e.await(t, "a page with 8 GPUs", eightGPUs).family("DCGM_FI_DEV_GPU_TEMP") {
		out[s.get("gpu")] = s.get("UUID")
	}
	return out
}

// podOf checks the pod on each of these GPUs; "" means none.
func podOf(pods map[string]string) func(page) error {
	return func(p page) error {
		var errs []error
		for _, s := range p.family("DCGM_FI_DEV_GPU_TEMP") {
			if want, asked := pods[s.get("gpu")]; asked && s.get("pod") != want {
				errs = append(errs, fmt.Errorf("GPU %s is pod %q's, want %q", s.get("gpu"), s.get("pod"), want))
			}
		}
		return errors.Join(errs...)
	}
}

func pod(name string, uuids ...string) *v1.PodResources {
	return kubelet.Pod("ml", name, kubelet.Container("main", kubelet.Devices("nvidia.com/gpu", uuids...)))
}

// TestE2EPods runs the binary with a scripted kubelet and 50 clients, while the kubelet goes through all its states and
// the list is reloaded. Every scrape must have the same set of series, and the exporter must not leak. The sampling
// process has none of the exporter's sockets. TestOwnersOnThePage covers the page in each mode.
func TestE2EPods(t *testing.T) {
	t.Parallel()
	path := file(t, "counters.csv", podsCSV)
	k := kubelet.Start(t)
	e := serve(t, build(t), withKubelet(k.Socket(), "-f", path, "--collect-interval=200", "--slow-interval=200ms", "--isolation=process")...)
	gpus := e.uuids(t)
	pods := []*v1.PodResources{pod("train-0", gpus["0"], gpus["1"]), pod("train-1", gpus["2"]), pod("chat", gpus["5"])}
	k.Set(pods...)
	want := podOf(map[string]string{"0": "train-0", "1": "train-0", "2": "train-1", "3": "", "5": "chat"})
	healthy := is(1, "warpgauge_mapping_up", "mapping", "pod_resources")
	e.await(t, "the pods, and a healthy mapping", want, healthy)
	child := e.child(t)
	ours := programtest.OpenFiles(e.PID())
	for _, f := range programtest.OpenFiles(child) {
		testkit.ErrorIf(t, strings.HasPrefix(f, "socket:") && slices.Contains(ours, f), "the child has a socket of the exporter: %s", f)
	}

	before := e.holding(t)
	first := devicesSeries(e.scrape(t, acceptText))
	if len(first) != 16 {
		t.Fatalf("%d series, want 16: %v", len(first), first)
	}
	w := watch(t, e, 50, func(p page) error {
		if now := devicesSeries(p); !maps.Equal(first, now) {
			return errors.New("the page has other series (-before +now):\n" + cmp.Diff(first, now))
		}
		return nil
	})
	write(t, path, strings.Replace(podsCSV, "Temperature.", "Temperature in C.", 1)) // a reload that keeps the series
	flap(k, pods)
	w.stop(t)
	e.await(t, "a healthy mapping that has failed, and a reload", want, healthy, func(p page) error {
		n, err := p.one("warpgauge_config_reloads_total", "result", "success")
		if err == nil && n < 1 {
			err = errors.New("the list was not read again meanwhile")
		}
		failures := 0.0
		for _, s := range p.family("warpgauge_mapping_errors_total") {
			failures += s.value
		}
		if failures == 0 {
			err = errors.Join(err, errors.New("the kubelet has flapped, and no failure is counted"))
		}
		return err
	})
	e.awaitHolding(t, before)

	// After one more restart, another node's pods replace the old ones.
	k.Restart(pod("other-0", gpus["0"]), pod("other-1", gpus["1"], gpus["2"]), pod("other-5", gpus["5"]))
	other := podOf(map[string]string{"0": "other-0", "1": "other-1", "2": "other-1", "3": "", "5": "other-5"})
	e.await(t, "the other pods", other)
	// The kubelet stops while the child is replaced: labels stay.
	k.Kill()
	must(t, syscall.Kill(e.child(t), syscall.SIGKILL))
	e.await(t, "the pods, on devices that another child has found", eightGPUs, upAgain(1, "signal"), other)
	// The exporter stops while the kubelet owes an answer.
	k.Restart()
	k.On(kubelet.Silence())
	k.Await(1)
	e.ends(t, os.Interrupt)
	testkit.Lacks(t, "log", e.Output(), "abandoning")
}

// devicesSeries returns names and labels of the device series.
func devicesSeries(p page) map[string]bool {
	out := map[string]bool{}
	for _, s := range p {
		if isDCGM(s.name) {
			out[s.labels.String()] = true
		}
	}
	return out
}

// flap puts the kubelet through all its states: faster than the polls, then each failure until the next poll, once a second.
func flap(k *kubelet.Server, pods []*v1.PodResources) {
	steps := []func(){
		func() { k.On(kubelet.Fail(codes.Internal, "no")) },
		func() { k.On(kubelet.Say([]byte{0xff, 0xff})) },
		func() { k.On(kubelet.Silence()) },
		func() { k.On(nil); k.Restart() }, // lists nothing yet
		func() { k.Restart(pods...) },
		k.Kill,
		func() { k.Restart(pods...) },
	}
	for i := range 10 * len(steps) {
		steps[i%len(steps)]()
		time.Sleep(30 * time.Millisecond)
	}
	for _, step := range steps[1:4] {
		step()
		time.Sleep(1200 * time.Millisecond)
	}
	k.Restart(pods...)
}
