package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/kube/kubetest"
)

var (
	pod       = kubetest.Pod
	container = kubetest.Container
	devices   = kubetest.Devices
	claim     = kubetest.Claim
)

func gpus(resource string) bool { return strings.HasPrefix(resource, "nvidia.com/") }

func listOf(pods ...*v1.PodResources) *v1.ListPodResourcesResponse {
	return &v1.ListPodResourcesResponse{PodResources: pods}
}

// podOf is a pod as in Allocations.
func podOf(namespace, name string, containers ...Container) Pod {
	return Pod{PodName{namespace, name}, containers}
}

func TestList(t *testing.T) {
	f := func(name string, want []Pod, pods ...*v1.PodResources) {
		t.Helper()
		got, err := readAnswer(listOf(pods...), gpus)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got.pods); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.skipped != 0 || len(got.listed) != len(pods) {
			t.Errorf("%s: %d parts skipped (%s), %d pods listed; want 0 and %d", name, got.skipped, got.example, len(got.listed), len(pods))
		}
	}
	one := func(resource string, ids ...string) []Pod {
		return []Pod{podOf("ns", "p", Container{Name: "c", Devices: []Devices{{resource, ids}}})}
	}
	f("nothing", nil)
	f("no devices", nil, pod("ns", "p", container("c"), container("d")))
	f("one", one("nvidia.com/gpu", "GPU-1"), pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-1"))))
	f("another resource", nil, pod("ns", "p", container("c", devices("example.com/nic", "eth0"))))
	f("an entry for each device", one("nvidia.com/gpu", "GPU-1", "GPU-2"),
		pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-2"), devices("nvidia.com/gpu", "GPU-1"))))
	f("several ids in an entry", one("nvidia.com/gpu", "GPU-1", "GPU-2"),
		pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-2", "GPU-1"))))
	f("an entry for each NUMA node", one("nvidia.com/gpu", "GPU-1"),
		pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-1", "GPU-1"), devices("nvidia.com/gpu", "GPU-1"))))
	f("an entry without ids", nil, pod("ns", "p", container("c", devices("nvidia.com/gpu"))))
	has := func(id string) []Container {
		return []Container{{Name: "c", Devices: []Devices{{"nvidia.com/gpu", []string{id}}}}}
	}
	f("sorted", []Pod{podOf("a", "z", has("GPU-3")...), podOf("b", "a", has("GPU-2")...), podOf("b", "b", has("GPU-1")...)},
		pod("b", "b", container("c", devices("nvidia.com/gpu", "GPU-1"))),
		pod("b", "a", container("c", devices("nvidia.com/gpu", "GPU-2"))),
		pod("a", "z", container("c", devices("nvidia.com/gpu", "GPU-3"))))

	gpu := kubetest.ClaimedDevice{Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0"}
	part := kubetest.ClaimedDevice{Driver: "example.com", Pool: "node", Device: "nic"}
	f("claims", []Pod{podOf("ns", "p", Container{Name: "c", Claims: []Claim{
		{"ns", "one", DeviceName{"example.com", "node", "nic"}},
		{"ns", "one", DeviceName{"gpu.nvidia.com", "node", "gpu-0"}},
		{"ns", "two", DeviceName{"gpu.nvidia.com", "node", "gpu-0"}},
	}})},
		pod("ns", "p", container("c", claim("ns", "two", gpu), claim("ns", "one", gpu, part, gpu))))
}

func TestPartsOfNoUseAreLeftOutAndCounted(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	long := strings.Repeat("x", maxNameBytes+1)
	f := func(name string, skipped int, pods ...*v1.PodResources) {
		t.Helper()
		good := pod("ns", "p", container("c", devices(gpu, "GPU-1")))
		got, err := readAnswer(listOf(append(pods, good)...), gpus)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := []Pod{podOf("ns", "p", Container{Name: "c", Devices: []Devices{{gpu, []string{"GPU-1"}}}})}
		if diff := cmp.Diff(want, got.pods); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.skipped != skipped || !utf8.ValidString(got.example) || len(got.example) > 400 {
			t.Errorf("%s: skipped %d, want %d; first %q", name, got.skipped, skipped, got.example)
		}
	}
	claimed := func(name string, d kubetest.ClaimedDevice) *v1.PodResources {
		return pod("ns", "x", container("c", claim("ns", name, d)))
	}
	f("nothing", 0)
	f("pod without devices or names", 0, pod("", ""))
	f("pod without a name", 1, pod("ns", "", container("c", devices(gpu, "GPU-2"))))
	f("pod without a namespace", 1, pod("", "x", container("c", devices(gpu, "GPU-2"))))
	f("container without a name", 1, pod("ns", "x", container("", devices(gpu, "GPU-2"))))
	f("empty id", 1, pod("ns", "x", container("c", devices(gpu, ""))))
	f("long ids", 2, pod("ns", "x", container("c", devices(gpu, long, long))))
	f("long id of what does not count", 0, pod("ns", "x", container("c", devices("a", long))))
	f("claim without a name", 1, claimed("", kubetest.ClaimedDevice{Driver: "d", Pool: "p", Device: "e"}))
	f("claim without a driver", 1, claimed("x", kubetest.ClaimedDevice{Pool: "p", Device: "e"}))
	f("claim without a device", 1, claimed("x", kubetest.ClaimedDevice{Driver: "d", Pool: "p"}))
}

func TestAnswersThatAreTooLong(t *testing.T) {
	ids := make([]string, maxIDs+1)
	for i := range ids {
		ids[i] = "x"
	}
	for name, list := range map[string]*v1.ListPodResourcesResponse{
		"ids":  listOf(pod("ns", "p", container("c", devices("nvidia.com/gpu", ids...)))),
		"pods": {PodResources: make([]*v1.PodResources, maxPods+1)},
	} {
		if got, err := readAnswer(list, gpus); err == nil || got != nil {
			t.Errorf("too many %s: %v, %v, want an error", name, got, err)
		}
	}
}

// FuzzList reads what a server may send as an answer.
func FuzzList(f *testing.F) {
	add := func(pods ...*v1.PodResources) {
		b, err := proto.Marshal(listOf(pods...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(kubetest.Many(3, 2)...)
	add(pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-1", "", "GPU-1"), devices("a", "b")),
		container("c", claim("ns", "x", kubetest.ClaimedDevice{Driver: "d", Pool: "p", Device: "e"}))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var list v1.ListPodResourcesResponse
		if proto.Unmarshal(b, &list) != nil {
			return
		}
		if a, err := readAnswer(&list, gpus); err == nil {
			check(t, a.pods)
			current, _ := holders{}.assign(a.pods)
			check(t, current)
		}
	})
}

// check checks what Allocations promise.
func check(t testing.TB, pods []Pod) {
	t.Helper()
	label := func(s ...string) {
		for _, s := range s {
			if s == "" || len(s) > maxNameBytes || !utf8.ValidString(s) {
				t.Errorf("%q cannot be a label", s)
			}
		}
	}
	if !slices.IsSortedFunc(pods, func(a, b Pod) int { return a.PodName.Compare(b.PodName) }) {
		t.Errorf("pods are not sorted: %v", pods)
	}
	for _, p := range pods {
		label(p.Namespace, p.Name)
		if len(p.Containers) == 0 {
			t.Errorf("pod %q has nothing", p.Name)
		}
		for _, c := range p.Containers {
			label(c.Name)
			for _, d := range c.Devices {
				if !gpus(d.Resource) || len(d.IDs) == 0 || slices.Contains(d.IDs, "") || !slices.IsSorted(d.IDs) {
					t.Errorf("devices %q", d)
				}
			}
			for _, c := range c.Claims {
				label(c.Namespace, c.Name, c.Device.Driver, c.Device.Pool, c.Device.Device)
			}
			if len(c.Devices)+len(c.Claims) == 0 {
				t.Errorf("container %q has nothing", c.Name)
			}
		}
	}
}

// own is a pod with devices of nvidia.com/gpu.
func own(name string, ids ...string) Pod {
	return podOf("ns", name, Container{Name: "c", Devices: []Devices{{"nvidia.com/gpu", ids}}})
}

func sorted(pods []Pod) []Pod {
	out := slices.Clone(pods)
	sortPods(out)
	return out
}

// listing is the kubelet's list of pods, after that many idle ones without devices.
func listing(idle int, pods ...Pod) *v1.ListPodResourcesResponse {
	list := &v1.ListPodResourcesResponse{}
	for i := range idle {
		list.PodResources = append(list.PodResources, pod("idle", fmt.Sprint(i)))
	}
	for _, p := range pods {
		var containers []*v1.ContainerResources
		for _, c := range p.Containers {
			var has []kubetest.Resource
			for _, d := range c.Devices {
				has = append(has, devices(d.Resource, d.IDs...))
			}
			for _, d := range c.Claims {
				has = append(has, claim(d.Namespace, d.Name, kubetest.ClaimedDevice{Driver: d.Device.Driver, Pool: d.Device.Pool, Device: d.Device.Device}))
			}
			containers = append(containers, container(c.Name, has...))
		}
		list.PodResources = append(list.PodResources, pod(p.Namespace, p.Name, containers...))
	}
	return list
}
