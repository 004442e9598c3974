package podresources

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/podresources/podresourcestest"
)

var (
	pod       = podresourcestest.Pod
	container = podresourcestest.Container
	devices   = podresourcestest.Devices
	claim     = podresourcestest.Claim
)

func gpus(resource string) bool { return strings.HasPrefix(resource, "nvidia.com/") }

func message(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func listOf(t testing.TB, pods ...*v1.PodResources) []byte {
	return message(t, &v1.ListPodResourcesResponse{PodResources: pods})
}

var seed = maphash.MakeSeed()

func decode(b []byte) (*answer, error) { return newDecoder(gpus, seed).list(b) }

func TestList(t *testing.T) {
	f := func(name string, want []Pod, pods ...*v1.PodResources) {
		t.Helper()
		got, err := decode(listOf(t, pods...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got.pods); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.skipped.parts != 0 || len(got.listed) != len(pods) {
			t.Errorf("%s: %d parts skipped (%s), %d pods listed; want 0 and %d", name, got.skipped.parts, got.skipped.first, len(got.listed), len(pods))
		}
	}
	one := func(resource string, ids ...string) []Pod {
		return []Pod{{Namespace: "ns", Name: "p", Containers: []Container{{Name: "c", Devices: []Devices{{Resource: resource, IDs: ids}}}}}}
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
	f("a pod twice", []Pod{{Namespace: "ns", Name: "p", Containers: []Container{
		{Name: "c", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2"}}, {Resource: "nvidia.com/mig-1g.5gb", IDs: []string{"MIG-1"}}}},
		{Name: "d", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-3"}}}},
	}}},
		pod("ns", "p", container("c", devices("nvidia.com/mig-1g.5gb", "MIG-1"), devices("nvidia.com/gpu", "GPU-2"))),
		pod("ns", "p", container("d", devices("nvidia.com/gpu", "GPU-3")), container("c", devices("nvidia.com/gpu", "GPU-1"))))
	f("sorted", []Pod{
		{Namespace: "a", Name: "z", Containers: []Container{{Name: "c", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-3"}}}}}},
		{Namespace: "b", Name: "a", Containers: []Container{{Name: "c", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-2"}}}}}},
		{Namespace: "b", Name: "b", Containers: []Container{{Name: "c", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1"}}}}}},
	},
		pod("b", "b", container("c", devices("nvidia.com/gpu", "GPU-1"))),
		pod("b", "a", container("c", devices("nvidia.com/gpu", "GPU-2"))),
		pod("a", "z", container("c", devices("nvidia.com/gpu", "GPU-3"))))

	gpu := podresourcestest.ClaimedDevice{Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0", CDI: []string{"b", "a", "a"}}
	part := podresourcestest.ClaimedDevice{Driver: "example.com", Pool: "node", Device: "nic", ShareID: "s"}
	f("claims", []Pod{{Namespace: "ns", Name: "p", Containers: []Container{{Name: "c", Claims: []Claim{
		{Namespace: "ns", Name: "one", Driver: "example.com", Pool: "node", Device: "nic", ShareID: "s"},
		{Namespace: "ns", Name: "one", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0", CDI: []string{"a", "b"}},
		{Namespace: "ns", Name: "two", Driver: "gpu.nvidia.com", Pool: "node", Device: "gpu-0", CDI: []string{"a", "b"}},
	}}}}},
		pod("ns", "p", container("c", claim("ns", "two", gpu), claim("ns", "one", gpu, part, gpu))))
}

func TestAllocatable(t *testing.T) {
	m := &v1.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}, Devices: []*v1.ContainerDevices{
		devices("nvidia.com/gpu", "GPU-2").Entry(), devices("example.com/nic", "eth0").Entry(), devices("nvidia.com/gpu", "GPU-1").Entry(),
		devices("nvidia.com/gpu", "GPU-2").Entry(),
	}}
	got, err := newDecoder(gpus, seed).able(message(t, m))
	want := []Devices{{Resource: "nvidia.com/gpu", IDs: []string{"GPU-1", "GPU-2"}}}
	if diff := cmp.Diff(want, got.allocatable); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := newDecoder(gpus, seed).able(nil); err != nil || got.allocatable == nil || len(got.allocatable) != 0 {
		t.Errorf("none: %v, %v, want empty and not nil", got, err)
	}
}

// raw makes messages that the generated code refuses to make.
func raw(parts ...any) (b []byte) {
	for i := 0; i < len(parts); i += 2 {
		b = protowire.AppendTag(b, protowire.Number(parts[i].(int)), protowire.BytesType)
		switch v := parts[i+1].(type) {
		case string:
			b = protowire.AppendString(b, v)
		case []byte:
			b = protowire.AppendBytes(b, v)
		}
	}
	return b
}

func TestWhatCannotBeUsedIsLeftOutAndCounted(t *testing.T) {
	const gpu = "nvidia.com/gpu"
	good := raw(containerName, "c", containerDevices, raw(devicesResource, gpu, devicesIDs, "GPU-1"))
	whole := raw(podName, "p", podNamespace, "ns", podContainers, good)
	long := strings.Repeat("x", longest+1)
	f := func(name string, parts int, part string, pods ...[]byte) {
		t.Helper()
		var b []byte
		for _, p := range append(pods, whole) {
			b = append(b, raw(listPods, p)...)
		}
		got, err := decode(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := []Pod{{Namespace: "ns", Name: "p", Containers: []Container{{Name: "c", Devices: []Devices{{Resource: gpu, IDs: []string{"GPU-1"}}}}}}}
		if diff := cmp.Diff(want, got.pods); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got.skipped.parts != parts || !strings.Contains(got.skipped.first, part) {
			t.Errorf("%s: skipped %d, first %q; want %d, with %q", name, got.skipped.parts, got.skipped.first, parts, part)
		}
		if !utf8.ValidString(got.skipped.first) || len(got.skipped.first) > 400 {
			t.Errorf("%s: not fit for a log: %q", name, got.skipped.first)
		}
	}
	in := func(c []byte) []byte { return raw(podName, "p", podNamespace, "ns", podContainers, c) }
	with := func(field int, m []byte) []byte { return in(raw(containerName, "c", field, m)) }
	f("nothing", 0, "")
	f("empty pod without devices", 0, "", nil)
	f("pod without a name", 1, "the name of a pod is empty", raw(podNamespace, "ns", podContainers, good))
	f("pod without a namespace", 1, "the namespace of a pod is empty", raw(podName, "p", podContainers, good))
	f("pod that is not UTF-8", 1, "not UTF-8", raw(podName, "\xff", podNamespace, "ns", podContainers, good))
	f("pod that is no message", 1, "not a protobuf message", []byte{0xff})
	f("container without a name", 1, "container", in(raw(containerDevices, raw(devicesResource, gpu, devicesIDs, "GPU-2"))))
	f("container that breaks off", 1, "not a protobuf message", in(append(bytes.Clone(good), 0x0a, 9)))
	f("resource without a name", 1, "resource is empty", with(containerDevices, raw(devicesIDs, "GPU-2")))
	f("empty id", 1, `a device id of nvidia.com/gpu is empty (namespace "ns", pod "p", container "c")`, with(containerDevices, raw(devicesResource, gpu, devicesIDs, "")))
	f("long ids", 2, "1025 bytes, more than 1024", with(containerDevices, raw(devicesResource, gpu, devicesIDs, long, devicesIDs, "GPU-1", devicesIDs, long)))
	f("long id of what does not count", 0, "", with(containerDevices, raw(devicesResource, "a", devicesIDs, long)))
	f("long nonsense", 1, "not UTF-8", with(containerDevices, raw(devicesResource, gpu, devicesIDs, strings.Repeat("\xff", longest))))
	f("claim without a name", 1, "the name of a claim", with(containerClaims, raw(claimNamespace, "ns")))
	f("claim without a driver", 1, "driver", with(containerClaims, raw(claimName, "x", claimNamespace, "ns", claimDevices, raw(devicePool, "a", deviceName, "b"))))
	f("claim without a device", 1, "device", with(containerClaims, raw(claimName, "x", claimNamespace, "ns", claimDevices, raw(devicePool, "a", deviceDriver, "b"))))
}

func TestAnswersThatAreRefused(t *testing.T) {
	f := func(name string, want error, b []byte) {
		t.Helper()
		if got, err := decode(b); !errors.Is(err, want) || got != nil {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
	f("garbage", errWire, []byte("HTTP/1.1 400 Bad Request"))
	f("a list that breaks off", errWire, listOf(t, pod("ns", "p"))[:5])
	ids := raw(devicesResource, "nvidia.com/gpu")
	for range most + 1 {
		ids = append(ids, raw(devicesIDs, "x")...)
	}
	f("too many ids", errTooMany, raw(listPods, raw(podName, "p", podNamespace, "ns", podContainers, raw(containerName, "c", containerDevices, ids))))
	f("too many pods", errTooMany, bytes.Repeat(raw(listPods, ""), mostPods+1))
	f("nothing of use", errNonsense, bytes.Repeat(raw(listPods, "\xff"), mostSkipped+1))
	able, err := newDecoder(gpus, seed).able(raw(allocatableDevices, ids))
	if !errors.Is(err, errTooMany) {
		t.Errorf("too many allocatable devices: %v, %v", able, err)
	}
}

func TestAnAnswerKeepsNothingOfItsMessage(t *testing.T) {
	b := listOf(t, pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-1"),
		claim("ns", "x", podresourcestest.ClaimedDevice{Driver: "d", Pool: "p", Device: "e", ShareID: "s", CDI: []string{"cdi"}}))))
	want, err := decode(bytes.Clone(b))
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if diff := cmp.Diff(want.pods, got.pods); diff != "" {
		t.Errorf("after the message was overwritten (-want +got):\n%s", diff)
	}
}

func TestJoinedPartsDoNotKeepTheirMemory(t *testing.T) {
	var all []podresourcestest.Resource
	for range 1000 {
		all = append(all, devices("nvidia.com/gpu", "GPU-1", "GPU-2"))
	}
	got, err := decode(listOf(t, pod("ns", "p", container("c", all...))))
	if err != nil {
		t.Fatal(err)
	}
	d := got.pods[0].Containers[0].Devices
	if cap(d) > 2 || cap(d[0].IDs) > 4 {
		t.Errorf("room for %d entries and %d ids, want 1 and 2", cap(d), cap(d[0].IDs))
	}
}

// reference reads an answer with the generated code: the rival, and the judge.
func reference(b []byte, keep func(string) bool) ([]Pod, error) {
	var m v1.ListPodResourcesResponse
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	bad := func(s ...string) bool {
		return slices.ContainsFunc(s, func(s string) bool { return s == "" || len(s) > longest })
	}
	var out []Pod
	for _, p := range m.PodResources {
		pod := Pod{Namespace: p.Namespace, Name: p.Name}
		for _, c := range p.Containers {
			to := Container{Name: c.Name}
			for _, d := range c.Devices {
				ids := slices.DeleteFunc(slices.Clone(d.DeviceIds), func(id string) bool { return bad(id) })
				if !bad(d.ResourceName) && keep(d.ResourceName) && len(ids) > 0 {
					to.Devices = append(to.Devices, Devices{Resource: d.ResourceName, IDs: ids})
				}
			}
			for _, r := range c.DynamicResources {
				for _, d := range r.ClaimResources {
					if bad(r.ClaimName, r.ClaimNamespace, d.DriverName, d.PoolName, d.DeviceName) || len(d.GetShareId()) > longest {
						continue
					}
					claim := Claim{Namespace: r.ClaimNamespace, Name: r.ClaimName, Driver: d.DriverName, Pool: d.PoolName, Device: d.DeviceName, ShareID: d.GetShareId()}
					for _, cdi := range d.CdiDevices {
						if !bad(cdi.Name) {
							claim.CDI = append(claim.CDI, cdi.Name)
						}
					}
					to.Claims = append(to.Claims, claim)
				}
			}
			if !bad(to.Name) && (len(to.Devices) > 0 || len(to.Claims) > 0) {
				pod.Containers = append(pod.Containers, to)
			}
		}
		if !bad(pod.Name, pod.Namespace) && len(pod.Containers) > 0 {
			out = append(out, pod)
		}
	}
	return mergePods(out), nil
}

func FuzzList(f *testing.F) {
	share := "s"
	f.Add(listOf(f, podresourcestest.Many(3, 2)...))
	f.Add(listOf(f, pod("ns", "p", container("c", devices("nvidia.com/gpu", "GPU-1", "", "GPU-1"), devices("a", "b")),
		container("c", claim("ns", "x", podresourcestest.ClaimedDevice{Driver: "d", Pool: "p", Device: "e", ShareID: share, CDI: []string{"cdi", ""}})))))
	f.Add(raw(listPods, raw(podName, "\xff", podNamespace, "ns", podContainers, raw(containerName, "c"))))
	f.Add([]byte("HTTP/1.1 400 Bad Request"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode(b)
		want, refused := reference(b, gpus)
		if err != nil {
			if refused == nil && !errors.Is(err, errTooMany) && !errors.Is(err, errNonsense) {
				t.Fatalf("refused with %v what the generated code reads", err)
			}
			return
		}
		check(t, got.pods)
		if refused == nil {
			if diff := cmp.Diff(want, got.pods); diff != "" {
				t.Errorf("other than the generated code (-want +got):\n%s", diff)
			}
		}
	})
}

func FuzzAllocatable(f *testing.F) {
	f.Add(message(f, &v1.AllocatableResourcesResponse{CpuIds: []int64{1}, Devices: []*v1.ContainerDevices{devices("nvidia.com/gpu", "GPU-2", "GPU-1").Entry()}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := newDecoder(gpus, seed).able(b); err == nil {
			checkDevices(t, a.allocatable)
		}
	})
}

// check says what a Snapshot promises.
func check(t testing.TB, pods []Pod) {
	t.Helper()
	label := func(s ...string) {
		for _, s := range s {
			if s == "" || len(s) > longest || !utf8.ValidString(s) {
				t.Errorf("%q is no label", s)
			}
		}
	}
	ascending(t, pods, comparePods)
	for _, p := range pods {
		label(p.Namespace, p.Name)
		if len(p.Containers) == 0 {
			t.Errorf("pod %q has nothing", p.Name)
		}
		ascending(t, p.Containers, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range p.Containers {
			label(c.Name)
			checkDevices(t, c.Devices)
			ascending(t, c.Claims, compareClaims)
			for _, c := range c.Claims {
				label(c.Namespace, c.Name, c.Driver, c.Pool, c.Device)
				label(c.CDI...)
				ascending(t, c.CDI, strings.Compare)
			}
			if len(c.Devices)+len(c.Claims) == 0 {
				t.Errorf("container %q has nothing", c.Name)
			}
		}
	}
}

func checkDevices(t testing.TB, devices []Devices) {
	t.Helper()
	ascending(t, devices, compareDevices)
	for _, d := range devices {
		if !gpus(d.Resource) || len(d.IDs) == 0 || slices.Contains(d.IDs, "") {
			t.Errorf("devices %q", d)
		}
		ascending(t, d.IDs, strings.Compare)
	}
}

// ascending fails where elements are not sorted or not unique.
func ascending[T any](t testing.TB, s []T, compare func(a, b T) int) {
	t.Helper()
	for i := 1; i < len(s); i++ {
		if compare(s[i-1], s[i]) >= 0 {
			t.Errorf("%v before %v", s[i-1], s[i])
		}
	}
}
