package podmeta

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func unix(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// read converts a file of testdata, which holds one slice as the API server sends it.
func read(t *testing.T, file string) slice {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	s, ok := sliceOf(u.Object)
	if !ok {
		t.Fatalf("%s is not read", file)
	}
	return s
}

func TestWhatDriversPublish(t *testing.T) {
	const gpu, mig = "GPU-a15aaed3-d4e7-dde0-adcd-4432a8caf752", "MIG-9c3fe4f4-b18b-5fd8-8383-b47d7fe47736"
	for _, test := range []struct {
		file string
		want slice
	}{
		{"nvidia-25.3-v1beta1.json", slice{poolName{driverNVIDIA, "node-1"}, 1, 1, []namedDevice{
			{"gpu-0", Device{Type: "gpu", UUID: gpu, PCIBusID: "0000:d8:00.0", Index: 0, Attributes: map[string]string{"minor": "0"}}},
			{"gpu-1-mig-19-4-1", Device{Type: "mig", UUID: mig, ParentUUID: gpu, Profile: "1g.10gb", PCIBusID: "0000:d9:00.0", Index: 2,
				Attributes: map[string]string{"parentMinor": "1", "profileID": "19", "placementStart": "4"}}},
		}}},
		{"nvidia-2026-v1.json", slice{poolName{driverNVIDIA, "node-1"}, 3, 2, []namedDevice{
			{"gpu-0", Device{Type: "gpu", UUID: gpu, PCIBusID: "0000:d8:00.0", Index: -1, Attributes: map[string]string{"minor": "0"}}},
			{"gpu-0-mig-1g12gb-19-0", Device{Type: "mig", ParentUUID: gpu, Profile: "1g.12gb", PCIBusID: "0000:d8:00.0", Index: -1,
				Attributes: map[string]string{"parentMinor": "0", "profileID": "19", "placementStart": "0"}}},
			{"gpu-0-mig-1g24gb-me-20-5", Device{Type: "mig", ParentUUID: gpu, Profile: "1g.24gb+me", PCIBusID: "0000:d8:00.0", Index: -1,
				Attributes: map[string]string{"parentMinor": "0", "profileID": "20", "placementStart": "5"}}},
			{"gpu-vfio-1", Device{Type: "vfio", UUID: "GPU-b", PCIBusID: "0000:d9:00.0", Index: -1}},
		}}},
		{"amd-0.1-v1beta1.json", slice{poolName{driverAMD, "node-1"}, 1, 1, []namedDevice{
			{"gpu-32-160", Device{Type: "partition", Profile: "dpx_nps1", PCIBusID: "0003:00:01.0", Index: -1,
				Attributes: map[string]string{"cardIndex": "32", "renderIndex": "160"}}},
			{"gpu-1-128", Device{Type: "gpu", Profile: "spx_nps1", PCIBusID: "0000:0c:00.0", Index: -1,
				Attributes: map[string]string{"cardIndex": "1", "renderIndex": "128"}}},
		}}},
		{"amd-1.0-v1.json", slice{poolName{driverAMD, "node-1"}, 1, 1, []namedDevice{
			{"gpu-0-128", Device{Type: "gpu", PCIBusID: "0000:19:00.0", Index: -1,
				Attributes: map[string]string{"cardIndex": "0", "renderIndex": "128"}}},
			{"gpu-2-cpx-nps4", Device{Type: "partition", Profile: "cpx_nps4", PCIBusID: "0000:1b:00.0", Index: -1,
				Attributes: map[string]string{"gpuIndex": "2"}}},
			{"vfio-0", Device{Type: "vfio", PCIBusID: "0000:1b:02.0", Index: -1, Attributes: map[string]string{"isVF": "true"}}},
		}}},
	} {
		if diff := cmp.Diff(test.want, read(t, test.file), cmp.AllowUnexported(slice{}, poolName{}, namedDevice{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.file, diff)
		}
	}
}

func TestAttributesWithAndWithoutADomain(t *testing.T) {
	f := func(attributes object, want Device) {
		t.Helper()
		got := deviceOf(driverNVIDIA, "x", attributesOf(driverNVIDIA, attributes))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", attributes, diff)
		}
	}
	s := func(v string) object { return object{"string": v} }
	f(object{"uuid": s("a")}, Device{UUID: "a", Index: -1})
	f(object{"gpu.nvidia.com/uuid": s("a"), "gpu.nvidia.com/type": s("mig")}, Device{UUID: "a", Type: "mig", Index: -1})
	f(object{"gpu.amd.com/uuid": s("a")}, Device{Index: -1})
	f(object{"resource.kubernetes.io/pciBusID": s("0000:D8:00.0")}, Device{PCIBusID: "0000:d8:00.0", Index: -1})
	f(object{"pcieBusID": s("00000000:D8:00.0")}, Device{PCIBusID: "0000:d8:00.0", Index: -1})
	f(object{"pcieBusID": s("00010000:d8:00.0")}, Device{PCIBusID: "10000:d8:00.0", Index: -1})
	f(object{"pcieBusID": s("no address")}, Device{Index: -1})
	f(object{"index": object{"int": int64(3)}, "minor": object{"int": int64(4)}}, Device{Index: 3, Attributes: map[string]string{"minor": "4"}})
	f(object{"index": object{"int": int64(-3)}}, Device{Index: -1})
	f(object{"index": s("3")}, Device{Index: -1})
	f(object{"uuid": object{"int": int64(3)}, "type": s("tpu")}, Device{Type: "tpu", Index: -1})
	f(object{"uuid": s(strings.Repeat("x", 300)), "profile": s("\xff")}, Device{Index: -1})
	f(object{"uuid": nil, "type": "gpu", "profile": object{"string": nil}}, Device{Index: -1})
	f(nil, Device{Index: -1})
}

func attributesOf(driver string, all object) attributes { return attributes{driver, all} }

func TestWhatANameTells(t *testing.T) {
	f := func(driver, name string, want Device, ok bool) {
		t.Helper()
		got, told := FromName(DeviceName{driver, "node-1", name})
		if diff := cmp.Diff(want, got); diff != "" || told != ok {
			t.Errorf("%s %s: %v (-want +got):\n%s", driver, name, told, diff)
		}
	}
	f(driverNVIDIA, "gpu-7", Device{Type: "gpu", Index: -1, Attributes: map[string]string{"minor": "7"}}, true)
	f(driverNVIDIA, "gpu-7-mig-1c-3g20gb-9-4", Device{Type: "mig", Index: -1,
		Attributes: map[string]string{"parentMinor": "7", "profileID": "9", "placementStart": "4"}}, true)
	f(driverNVIDIA, "gpu-0-mig-19-4-1", Device{Type: "mig", Index: -1,
		Attributes: map[string]string{"parentMinor": "0", "profileID": "19", "placementStart": "4"}}, true)
	f(driverAMD, "gpu-1-129", Device{Index: -1, Attributes: map[string]string{"cardIndex": "1", "renderIndex": "129"}}, true)
	f(driverAMD, "gpu-1-cpx-nps4", Device{Index: -1}, false)
	f(driverNVIDIA, "gpu-", Device{Index: -1}, false)
	f(driverNVIDIA, "gpu-1-129", Device{Index: -1}, false)
	f("gpu.example.com", "gpu-1", Device{Index: -1}, false)
}

func TestOnlyKnownDrivers(t *testing.T) {
	for driver, want := range map[string]bool{driverNVIDIA: true, driverAMD: true, "compute-domain.nvidia.com": false, "gpu.intel.com": false, "": false} {
		if _, got := sliceOf(clone(sliceObject("a", driver, "node-1", 1, 1))); got != want {
			t.Errorf("driver %q is read: %v", driver, got)
		}
	}
}

// FuzzSlice converts whatever a server may send. What comes out is safe as label
// values, and does not depend on what else was there.
func FuzzSlice(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"spec":{"driver":"gpu.nvidia.com","pool":{"name":"n","generation":1e300,"resourceSliceCount":-1},"devices":[{"name":"gpu-0-mig-1g-1-1","attributes":{"index":{"int":1.5}}},3,null]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		if json.Unmarshal(text, &object) != nil {
			return
		}
		s, ok := sliceOf(object)
		if !ok {
			if s.devices != nil {
				t.Fatal("devices of a slice that is not read")
			}
			return
		}
		safe := func(texts ...string) {
			for _, text := range texts {
				if !utf8.ValidString(text) || len(text) > maxText {
					t.Fatalf("unsafe text %q", text)
				}
			}
		}
		safe(s.pool.driver, s.pool.name)
		for _, d := range s.devices {
			safe(d.name, d.Type, d.UUID, d.ParentUUID, d.Profile, d.PCIBusID)
			for key, value := range d.Attributes {
				safe(key, value)
				if value == "" {
					t.Fatalf("attribute %q is empty", key)
				}
			}
			if d.name == "" || d.Index < -1 || d.Withdrawn || d.PCIBusID != "" && busID(d.PCIBusID) != d.PCIBusID {
				t.Fatalf("device %+v", d)
			}
		}
		joined := join(map[string]slice{"a": s}, nil)
		if len(joined) > len(s.devices) {
			t.Fatalf("%d devices out of %d", len(joined), len(s.devices))
		}
		if again := join(nil, joined); len(again) != min(len(joined), maxWithdrawn) {
			t.Fatalf("%d of %d devices stay", len(again), len(joined))
		}
	})
}
