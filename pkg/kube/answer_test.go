package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube/kubetest"
)

// own returns a pod with devices of nvidia.com/gpu.
func own(name string, ids ...string) Pod {
	return Pod{PodName{"ns", name}, []Container{{Name: "c", Devices: []Devices{{"nvidia.com/gpu", ids}}}}}
}

// listing returns a kubelet's answer: idle pods without devices, then pods.
func listing(idle int, pods ...Pod) *v1.ListPodResourcesResponse {
	list := &v1.ListPodResourcesResponse{}
	for i := range idle {
		list.PodResources = append(list.PodResources, kubetest.Pod("idle", fmt.Sprint(i)))
	}
	for _, p := range pods {
		var containers []*v1.ContainerResources
		for _, c := range p.Containers {
			var has []kubetest.Resource
			for _, d := range c.Devices {
				has = append(has, kubetest.Devices(d.Resource, d.IDs...))
			}
			for _, d := range c.Claims {
				has = append(has, kubetest.Claim(d.Namespace, d.Name, kubetest.ClaimedDevice(d.Device)))
			}
			containers = append(containers, kubetest.Container(c.Name, has...))
		}
		list.PodResources = append(list.PodResources, kubetest.Pod(p.Namespace, p.Name, containers...))
	}
	return list
}

// TestAnswer: devices are merged and sorted, whatever the order of the kubelet's entries.
func TestAnswer(t *testing.T) {
	const res = "example.com/gpu" // of a device plugin that no vendor names
	nic, gpu := DeviceName{"example.com", "node", "nic"}, DeviceName{"gpu.nvidia.com", "node", "gpu-0"}
	list := listing(2,
		Pod{PodName{"b", "b"}, []Container{{Name: "c", Devices: []Devices{{res, []string{"GPU-2", "GPU-1"}}, {"example.com/nic", []string{"eth0"}}, {res, []string{"GPU-1"}}, {res, nil}}}}},
		Pod{PodName{"b", "a"}, []Container{
			{Name: "z", Claims: []Claim{{"ns", "two", gpu}, {"ns", "one", gpu}, {"ns", "one", nic}, {"ns", "one", gpu}}},
			{Name: "none"},
			{Name: "c", Devices: []Devices{{"nvidia.com/mig-1g.5gb", []string{"MIG-1"}}, {res, []string{"GPU-3"}}}},
		}},
		Pod{PodName{"a", "z"}, []Container{{Name: "c", Devices: []Devices{{"example.com/nic", []string{"eth1"}}}}}})
	got, listed := readAnswer(list, []string{res})
	want := []Pod{
		{PodName{"b", "a"}, []Container{
			{Name: "c", Devices: []Devices{{res, []string{"GPU-3"}}, {"nvidia.com/mig-1g.5gb", []string{"MIG-1"}}}},
			{Name: "z", Claims: []Claim{{"ns", "one", nic}, {"ns", "one", gpu}, {"ns", "two", gpu}}},
		}},
		{PodName{"b", "b"}, []Container{{Name: "c", Devices: []Devices{{res, []string{"GPU-1", "GPU-2"}}}}}},
	}
	testkit.Equal(t, "number of pods listed", 5, len(listed))
	testkit.Equal(t, "pods", want, got)
}

// FuzzList decodes arbitrary server answers.
func FuzzList(f *testing.F) {
	for _, list := range []*v1.ListPodResourcesResponse{{PodResources: kubetest.Many(3, 2)}, listing(1, own("a", "GPU-1", "", "GPU-1"), own("a"))} {
		b := testkit.Get(proto.Marshal(list))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var list v1.ListPodResourcesResponse
		if proto.Unmarshal(b, &list) == nil {
			pods, _ := readAnswer(&list, nil)
			check(t, pods)
			pods, _ = holders{}.assign(pods)
			check(t, pods)
		}
	})
}

// check checks the invariants of Allocations.
func check(t testing.TB, pods []Pod) {
	t.Helper()
	testkit.Equal(t, "the pods are sorted", true, slices.IsSortedFunc(pods, func(a, b Pod) int { return a.PodName.Compare(b.PodName) }))
	for _, p := range pods {
		testkit.Equal(t, "pod "+p.Name+" has nothing", false, len(p.Containers) == 0)
		for _, c := range p.Containers {
			for _, d := range c.Devices {
				testkit.ErrorIf(t, !field.OffersGPU(d.Resource) || len(d.IDs) == 0 || !slices.IsSorted(d.IDs), "devices %q", d)
			}
			testkit.Equal(t, "container "+c.Name+" has nothing", false, len(c.Devices)+len(c.Claims) == 0)
		}
	}
}

func TestPodsThatAreMissingAfterARestart(t *testing.T) {
	a, b := own("a", "GPU-1"), own("b", "GPU-2", "GPU-3")
	last := []Pod{a, b}
	start := time.Unix(1000, 0)
	limits := NewKubelet(KubeletOptions{}).limits
	type step struct {
		at   time.Duration // since the restart
		says *v1.ListPodResourcesResponse
		kept []Pod
	}
	const idle = 6 // pods without devices
	f := func(name string, steps ...step) {
		t.Helper()
		var r restart
		missing := func(last []Pod, list *v1.ListPodResourcesResponse, at time.Time) []Pod {
			pods, listed := readAnswer(list, nil)
			return r.missing(last, pods, listed, at, limits)
		}
		r.begin(start.Add(-time.Hour))
		testkit.Equal(t, name+": pods kept at first", []Pod(nil), missing(nil, listing(idle, a, b), start.Add(-time.Hour)))
		r.begin(start)
		for _, s := range steps {
			testkit.Equal(t, fmt.Sprintf("%s after %v", name, s.at), s.kept, missing(last, s.says, start.Add(s.at)))
		}
	}
	sec := time.Second
	f("all there at once", step{0, listing(idle, a, b), nil}, step{5 * sec, listing(idle, a), nil})
	f("nothing for a while", step{0, listing(0), last}, step{20 * sec, listing(0), last}, step{40 * sec, listing(idle, a, b), nil})
	f("static pods for a while", step{0, listing(1), last}, step{20 * sec, listing(1), last}, step{4 * time.Minute, listing(1), last})
	f("nothing for ever", step{0, listing(0), last}, step{299 * sec, listing(0), last}, step{300 * sec, listing(0), nil})
	f("one is gone", step{0, listing(idle, a), []Pod{b}}, step{14 * sec, listing(idle, a), []Pod{b}}, step{15 * sec, listing(idle, a), nil})
	f("the list grows", step{0, listing(4), last}, step{10 * sec, listing(idle, a), []Pod{b}}, step{24 * sec, listing(idle, a), []Pod{b}}, step{25 * sec, listing(idle, a), nil})
	f("half is enough", step{0, listing(4), last}, step{15 * sec, listing(4), nil})
	f("less than half is not", step{0, listing(3), last}, step{15 * sec, listing(3), last})
	others := listing(0, own("1"), own("2"), own("3"), own("4"), own("5"))
	f("others do not count for half", step{0, others, last}, step{15 * sec, others, last})
	f("another pod has got one", step{0, listing(0, own("n", "GPU-2")), []Pod{a, own("b", "GPU-3")}})
	f("other pods have got all", step{0, listing(0, own("n", "GPU-2", "GPU-3", "GPU-1")), nil}, step{5 * sec, listing(0), nil})
	without := listing(idle, own("a"), own("b"))
	f("listed without its devices", step{0, without, last}, step{15 * sec, without, nil})
}

// The kubelet lists a finished pod until it is deleted, next to the pod that now has its device.
func TestADeviceIsHeldByThePodThatCameLast(t *testing.T) {
	old, next, third := own("old", "GPU-1", "GPU-2"), own("new", "GPU-1"), own("a-third", "GPU-1")
	type answers [][]Pod
	f := func(name string, listed, want answers) {
		t.Helper()
		var h holders
		for i, pods := range listed {
			var got []Pod
			pods = slices.Clone(pods)
			sortPods(pods)
			got, h = h.assign(pods)
			testkit.Equal(t, fmt.Sprintf("%s, answer %d", name, i), want[i], got, cmpopts.EquateEmpty())
		}
	}
	rest := own("old", "GPU-2")
	f("taken over", answers{{old}, {old, next}, {old, next}, {next}}, answers{{old}, {next, rest}, {next, rest}, {next}})
	f("twice", answers{{old}, {old, next}, {old, next, third}, {third}}, answers{{old}, {next, rest}, {third, rest}, {third}})
	f("all of it", answers{{own("old", "GPU-1")}, {own("old", "GPU-1"), next}}, answers{{own("old", "GPU-1")}, {next}})
	f("together from the start", answers{{old, next}, {old, next}}, answers{{next, old}, {next, old}})
	f("two at once", answers{{}, {old, next}}, answers{nil, {next, old}})
	f("the next one goes first", answers{{old}, {old, next}, {old}}, answers{{old}, {next, rest}, {rest}})
	f("and the pod has it again", answers{{old}, {old, next}, {}, {old}}, answers{{old}, {next, rest}, nil, {old}})
	f("after an empty answer", answers{{}, {old}, {old, next}}, answers{nil, {old}, {next, rest}})
}
