package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

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
			answer, err := readAnswer(list, gpus)
			if err != nil {
				t.Fatal(err)
			}
			return r.missing(last, answer.pods, answer.listed, at, limits)
		}
		r.begin(start.Add(-time.Hour))
		if kept := missing(nil, listing(idle, a, b), start.Add(-time.Hour)); kept != nil {
			t.Errorf("%s: kept at first %v", name, kept)
		}
		r.begin(start)
		for _, s := range steps {
			if diff := cmp.Diff(s.kept, missing(last, s.says, start.Add(s.at))); diff != "" {
				t.Errorf("%s after %v (-want +got):\n%s", name, s.at, diff)
			}
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
	others := listOf(pod("other", "1"), pod("other", "2"), pod("other", "3"), pod("other", "4"), pod("other", "5"))
	f("others do not count for half", step{0, others, last}, step{15 * sec, others, last})
	f("another pod has got one", step{0, listing(0, own("n", "GPU-2")), []Pod{a, own("b", "GPU-3")}})
	f("other pods have got all", step{0, listing(0, own("n", "GPU-2", "GPU-3", "GPU-1")), nil}, step{5 * sec, listing(0), nil})
	without := listing(idle)
	without.PodResources = append(without.PodResources, pod("ns", "a"), pod("ns", "b"))
	f("listed without its devices", step{0, without, last}, step{15 * sec, without, nil})
}

// The kubelet lists a pod that has finished until it is deleted, next to the one that has
// got its device (audit C6).
func TestADeviceIsHeldByThePodThatCameLast(t *testing.T) {
	old, next, third := own("old", "GPU-1", "GPU-2"), own("new", "GPU-1"), own("a-third", "GPU-1")
	type answers [][]Pod
	f := func(name string, listed, want answers) {
		t.Helper()
		var h holders
		for i, pods := range listed {
			var got []Pod
			got, h = h.assign(sorted(pods))
			if diff := cmp.Diff(want[i], got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, answer %d (-want +got):\n%s", name, i, diff)
			}
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
	if _, h := (holders{}).assign(nil); h.listed == nil {
		t.Error("an empty first answer is not noted")
	}
}
