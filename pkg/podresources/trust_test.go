package podresources

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// own is a pod with devices of nvidia.com/gpu.
func own(name string, ids ...string) Pod {
	return Pod{Namespace: "ns", Name: name, Containers: []Container{{Name: "c", Devices: []Devices{{Resource: "nvidia.com/gpu", IDs: ids}}}}}
}

// kubeletLists makes the answer of a list of pods; idle ones have no devices.
func kubeletLists(idle []uint64, pods ...Pod) *answer {
	a := &answer{pods: mergePods(pods), listed: append([]uint64{}, idle...)}
	for _, p := range pods {
		a.listed = append(a.listed, uint64(p.Name[0]))
	}
	return a
}

func TestWhoIsMissingAfterARestart(t *testing.T) {
	idle := []uint64{1, 2, 3, 4, 5, 6} // pods without devices
	a, b := own("a", "GPU-1"), own("b", "GPU-2", "GPU-3")
	last := []Pod{a, b}
	start := time.Unix(1000, 0)
	type step struct {
		at   time.Duration // since the restart
		says *answer
		held []Pod
	}
	f := func(name string, steps ...step) {
		t.Helper()
		tr := trust{settle: 15 * time.Second, distrust: 5 * time.Minute}
		tr.restarted(start.Add(-time.Hour))
		if held := tr.missing(nil, kubeletLists(idle, a, b), start.Add(-time.Hour)); held != nil {
			t.Errorf("%s: held at first %v", name, held)
		}
		tr.restarted(start)
		for _, s := range steps {
			got := tr.missing(last, s.says, start.Add(s.at))
			if diff := cmp.Diff(s.held, got); diff != "" {
				t.Errorf("%s after %v (-want +got):\n%s", name, s.at, diff)
			}
		}
	}
	sec := time.Second
	f("all there at once", step{0, kubeletLists(idle, a, b), nil}, step{5 * sec, kubeletLists(idle, a), nil})
	f("nothing for a while", step{0, kubeletLists(nil), last}, step{20 * sec, kubeletLists(nil), last}, step{40 * sec, kubeletLists(idle, a, b), nil})
	f("static pods for a while", step{0, kubeletLists(idle[:1]), last}, step{20 * sec, kubeletLists(idle[:1]), last}, step{4 * time.Minute, kubeletLists(idle[:1]), last})
	f("nothing for ever", step{0, kubeletLists(nil), last}, step{299 * sec, kubeletLists(nil), last}, step{300 * sec, kubeletLists(nil), nil})
	f("one is gone", step{0, kubeletLists(idle, a), []Pod{b}}, step{14 * sec, kubeletLists(idle, a), []Pod{b}}, step{15 * sec, kubeletLists(idle, a), nil})
	f("the list grows", step{0, kubeletLists(idle[:4]), last}, step{10 * sec, kubeletLists(idle, a), []Pod{b}}, step{24 * sec, kubeletLists(idle, a), []Pod{b}}, step{25 * sec, kubeletLists(idle, a), nil})
	f("half is enough", step{0, kubeletLists(idle[:4]), last}, step{15 * sec, kubeletLists(idle[:4]), nil})
	f("less than half is not", step{0, kubeletLists(idle[:3]), last}, step{15 * sec, kubeletLists(idle[:3]), last})
	f("others do not count for half", step{0, kubeletLists([]uint64{11, 12, 13, 14, 15}), last}, step{15 * sec, kubeletLists([]uint64{11, 12, 13, 14, 15}), last})
	f("another pod has got one", step{0, kubeletLists(nil, own("n", "GPU-2")), []Pod{a, own("b", "GPU-3")}})
	f("other pods have got all", step{0, kubeletLists(nil, own("n", "GPU-2", "GPU-3", "GPU-1")), nil}, step{5 * sec, kubeletLists(nil), nil})
	f("listed without its devices", step{0, kubeletLists(append([]uint64{'a', 'b'}, idle...)), last}, step{15 * sec, kubeletLists(append([]uint64{'a', 'b'}, idle...)), nil})
}

func TestNobodyIsMissingWithoutARestart(t *testing.T) {
	tr := trust{settle: 15 * time.Second, distrust: 5 * time.Minute}
	now := time.Unix(1000, 0)
	tr.restarted(now)
	tr.missing(nil, kubeletLists(nil, own("a", "GPU-1")), now)
	if held := tr.missing([]Pod{own("a", "GPU-1")}, kubeletLists(nil), now.Add(time.Second)); held != nil {
		t.Errorf("held %v, want nothing: the kubelet has been there all the time", held)
	}
}

func TestClaimsOfMissingPodsStayWhoeverElseHasThem(t *testing.T) {
	p := own("a", "GPU-1")
	p.Containers[0].Claims = []Claim{{Namespace: "ns", Name: "x", Driver: "d", Pool: "p", Device: "gpu-0"}}
	got := absent([]Pod{p}, []Pod{own("b", "GPU-1")})
	want := []Pod{{Namespace: "ns", Name: "a", Containers: []Container{{Name: "c", Devices: []Devices{}, Claims: p.Containers[0].Claims}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatCouldBeHandedOutAfterARestart(t *testing.T) {
	tr := trust{distrust: time.Minute}
	now := time.Unix(1000, 0)
	gpu, mig := Devices{Resource: "gpu", IDs: []string{"1"}}, Devices{Resource: "mig", IDs: []string{"2"}}
	f := func(name string, at time.Duration, told, want []Devices) {
		t.Helper()
		if diff := cmp.Diff(want, tr.able([]Devices{gpu, mig}, told, now.Add(at))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f("no restart", 0, []Devices{}, []Devices{})
	tr.restarted(now)
	f("not registered yet", 0, []Devices{}, []Devices{gpu, mig})
	f("one is", 0, []Devices{mig}, []Devices{gpu, mig})
	f("with other ids", 0, []Devices{{Resource: "gpu", IDs: []string{"3"}}}, []Devices{{Resource: "gpu", IDs: []string{"3"}}, mig})
	f("never", time.Minute, []Devices{mig}, []Devices{mig})
}
