package owner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
)

const mib = 1 << 20

var nan = math.NaN()

// proc returns a process of a pod.
func proc(uid string, busy, memory float64) Process {
	return Process{Process: collector.Process{Busy: busy, Memory: memory}, PodUID: uid}
}

// shown returns the values of users of a device: "labels: utilisation memory". A hyphen stands for an absent value;
// users without values are omitted.
func (r *rig) shown(device string) (out []string) {
	s := r.Shares()
	if s == nil {
		return nil
	}
	text := func(v float64) string {
		if v != v {
			return "-"
		}
		return fmt.Sprint(v)
	}
	for i := 0; i < len(s.Series); i += 2 {
		util, memory := s.Series[i], s.Series[i+1]
		if util.Field != gpuUtil || memory.Field != fbUsed || util.Device != memory.Device || !equalOwners(util.Owner, memory.Owner) {
			return []string{"series in another order"}
		}
		if util.Device == device && (s.Values[i] == s.Values[i] || s.Values[i+1] == s.Values[i+1]) {
			out = append(out, labelText(util.Owner)+": "+text(s.Values[i])+" "+text(s.Values[i+1]))
		}
	}
	return out
}

// shows checks the values of users of a device.
func (r *rig) shows(t *testing.T, what, device string, want ...string) {
	t.Helper()
	testkit.Equal(t, what, want, r.shown(device), cmpopts.EquateEmpty())
}

// twoPods returns a GPU that two pods share.
func twoPods(change ...func(*Options)) *rig {
	return newRig(all(append(change, virtual)...), machine()...).know("ml/a uid-a", "ml/b uid-b").
		give("ml/a/main: nvidia.com/gpu "+uuid(0)+"::0", "ml/b/main: nvidia.com/gpu "+uuid(0)+"::1")
}

const (
	ofA = "container=main namespace=ml pod=a pod_uid=uid-a vgpu=0"
	ofB = "container=main namespace=ml pod=b pod_uid=uid-b vgpu=1"
)

func TestSharesOfPods(t *testing.T) {
	f := func(what string, complete bool, users []Process, want ...string) {
		t.Helper()
		twoPods().use(uuid(0), complete, users...).shows(t, what, uuid(0), want...)
	}
	a, b := proc("uid-a", 30, 100*mib), proc("uid-b", 12.5, 50.5*mib)
	f("both", true, []Process{a, b}, ofA+": 30 100", ofB+": 12.5 50.5")
	f("several containers", true, []Process{a, proc("uid-a", 1, mib), b}, ofA+": 31 101", ofB+": 12.5 50.5")
	f("one idle", true, []Process{a}, ofA+": 30 100", ofB+": 0 0")
	f("one without a process so far as is known", false, []Process{a}, ofA+": 30 100")
	f("all idle", true, nil, ofA+": 0 0", ofB+": 0 0")
	f("nothing known", false, nil)
	f("processes outside of pods", true, []Process{a, b, proc("", 40, 10*mib)}, ofA+": 30 100", ofB+": 12.5 50.5")
	f("a container outside of Kubernetes", true, []Process{a, proc("", 40, 10*mib)}, ofA+": 30 100", ofB+": 0 0")
	f("a pod that has no device", true, []Process{a, b, proc("uid-c", 7, mib)}, ofA+": 30 100", ofB+": 12.5 50.5")
	f("an unknown pod may be a known pod that was created again", true, []Process{a, proc("uid-new", 7, mib)}, ofA+": 30 100")
	f("utilisation is unknown", true, []Process{proc("uid-a", nan, 100*mib)}, ofA+": - 100", ofB+": - 0")
	f("utilisation is known of one", true, []Process{proc("uid-a", nan, 100*mib), b}, ofA+": - 100", ofB+": 12.5 50.5")
	f("a part of a sum is unknown", true, []Process{a, proc("uid-a", 5, nan), b}, ofA+": 35 -", ofB+": 12.5 50.5")
	f("zero is a value", true, []Process{proc("uid-a", 0, 0), b}, ofA+": 0 0", ofB+": 12.5 50.5")
}

// TestSharesWithoutNames: a pod with an unknown UID has no values, and especially no 0.
func TestSharesWithoutNames(t *testing.T) {
	users := []Process{proc("uid-a", 30, 100*mib)}
	share := func() *rig {
		return newRig(virtual, machine()...).give("ml/a/main: nvidia.com/gpu "+uuid(0), "ml/b/main: nvidia.com/gpu "+uuid(0)).use(uuid(0), true, users...)
	}
	f := func(what string, r *rig, want ...string) {
		t.Helper()
		for i := range want {
			want[i] = "container=main namespace=ml pod=" + want[i]
		}
		r.shows(t, what, uuid(0), want...)
	}
	r := share()
	f("no uids are known", r)
	testkit.Equal(t, "the device's series, of whose pods nothing is known, are split", true, r.Split(r.device(t, uuid(0)), gpuUtil))
	f("one uid is known", r.know("ml/a uid-a"), "a pod_uid=uid-a: 30 100")
	r.know("ml/a api-a", "ml/b api-b")
	// The API server knows both UIDs of a static pod.
	r.tell(func(m *kube.Metadata) { m.ByUID["hash"] = kube.PodName{Namespace: "ml", Name: "a"} })
	f("a static pod", r.use(uuid(0), true, proc("hash", 5, mib)), "a pod_uid=api-a: 5 1", "b pod_uid=api-b: 0 0")
}

// TestSplit checks which devices show values per user in each mode.
func TestSplit(t *testing.T) {
	f := func(what string, plain, virtualised bool, given ...string) {
		t.Helper()
		for _, c := range []struct {
			change func(*Options)
			want   bool
		}{{nil, plain}, {virtual, virtualised}, {all(virtual, withoutProcesses), false}} {
			r := newRig(c.change, machine()...).give(given...)
			d := r.device(t, uuid(0))
			if r.Split(d, gpuUtil) != c.want || r.Split(d, fbUsed) != c.want || r.Split(d, 150) {
				t.Errorf("%s: split %v, want %v; temperature %v", what, !c.want, c.want, r.Split(d, 150))
			}
		}
	}
	one := "ml/a/main: nvidia.com/gpu " + uuid(0)
	f("no user", false, false)
	f("one container", false, false, one)
	f("two shares of one container", false, false, "ml/a/main: nvidia.com/gpu "+uuid(0)+"::0 "+uuid(0)+"::1")
	f("two containers", false, true, one, "ml/a/side: nvidia.com/gpu "+uuid(0)) // without Virtual the pod owns the device
	f("two pods", true, true, one, "ml/b/main: nvidia.com/gpu "+uuid(0))
}

// TestSharesOfInstances: the library reports only memory for instances, so an idle user has no utilisation either.
func TestSharesOfInstances(t *testing.T) {
	r := newRig(virtual, machine()...).know("ml/a uid-a", "ml/b uid-b").
		give("ml/a/main: nvidia.com/mig-1g.10gb "+mig(0)+"::0", "ml/b/main: nvidia.com/mig-1g.10gb "+mig(0)+"::1")
	id := uuid(2) + "/0"
	r.use(id, true, proc("uid-a", nan, 3*mib)).shows(t, "memory only", id, ofA+": - 3", ofB+": - 0")
	r.use(id, true).shows(t, "no process there", id, ofA+": - 0", ofB+": - 0")
	r.use(id, true, proc("uid-a", 9, 3*mib)).shows(t, "utilisation, too", id, ofA+": 9 3", ofB+": 0 0")
	r.shows(t, "the GPU", uuid(2))
}

// TestOldValuesLeave: unconfirmed values disappear, and return when confirmed.
func TestOldValuesLeave(t *testing.T) {
	r := twoPods(func(o *Options) { o.StaleAfter = 10 * time.Second }).use(uuid(0), true, proc("uid-a", 30, mib))
	at := r.used.Load().Devices[uuid(0)].Time
	f := func(after time.Duration, want int) {
		t.Helper()
		r.Refresh(at.Add(after))
		testkit.Equal(t, fmt.Sprintf("series after %v", after), want, len(r.shown(uuid(0))))
	}
	set := r.Shares().Set
	f(9*time.Second, 2)
	f(10*time.Second, 0)
	f(-10*time.Second, 0) // the clock was set back
	f(0, 2)
	testkit.Equal(t, "set after values that came and went", set, r.Shares().Set)
}

// TestSharesChangeOnlyIfTheyDiffer: pages compare shares by pointer.
func TestSharesChangeOnlyIfTheyDiffer(t *testing.T) {
	r := twoPods()
	s := r.Shares()
	testkit.FatalIf(t, s == nil || s.Set == 0, "shares are %+v", s)
	last := r.Shares()
	step := func(what string, set, values bool, change func()) {
		t.Helper()
		change()
		now := r.Shares()
		testkit.ErrorIf(t, (now != last) != (set || values) || (now.Set != last.Set) != set, "%s: other pointer %v, other set %v", what, now != last, now.Set != last.Set)
		testkit.Equal(t, what+": series with values", len(now.Values), len(now.Series))
		last = now
	}
	step("the same again", false, false, func() { r.Refresh(time.Now()) })
	step("values", false, true, func() { r.use(uuid(0), true, proc("uid-a", 30, mib)) })
	step("the same values, later", false, false, func() { r.use(uuid(0), true, proc("uid-a", 30, mib)) })
	step("another pod", true, false, func() {
		r.know("ml/a uid-a", "ml/b uid-b", "ml/c uid-c")
		r.give("ml/a/main: nvidia.com/gpu "+uuid(0)+"::0", "ml/c/main: nvidia.com/gpu "+uuid(0)+"::1")
	})
	step("labels of a pod that are not shown", false, false, func() { r.know("ml/a uid-a x=y", "ml/c uid-c") })
	step("not shared", true, false, func() { r.give() })
	testkit.Equal(t, fmt.Sprintf("left of %+v", last.Series), 0, len(last.Series))
}

// TestSumsAreExact: summed over all pods, memory equals the processes' memory to the byte, utilisation equals theirs
// within float precision, and no process counts twice.
func TestSumsAreExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		r := newRig(virtual, machine()...)
		var given, known []string
		var users []Process
		bytes, busy := 0.0, 0.0
		for p := range 1 + random.IntN(6) {
			pod := fmt.Sprintf("ml/p%d", p)
			known = append(known, pod+" uid-"+fmt.Sprint(p))
			for c := range 1 + random.IntN(3) {
				container := fmt.Sprintf("c%d-%d", p, c)
				given = append(given, fmt.Sprintf("%s/%s: nvidia.com/gpu %s::%d %s::%d", pod, container, uuid(0), p*10+c, uuid(0), 100+p*10+c))
				for range random.IntN(3) {
					u := proc(fmt.Sprintf("uid-%d", p), float64(random.IntN(1000))/8, float64(random.Int64N(1<<36)))
					bytes, busy = bytes+u.Memory, busy+u.Busy
					users = append(users, u)
				}
			}
		}
		if len(given) < 2 {
			continue
		}
		users = append(users, proc("", 11, 12345))
		random.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
		r.know(known...).give(given...).use(uuid(0), random.IntN(2) == 0, users...)
		s := r.Shares()
		testkit.FatalIf(t, s == nil, "round %d: no shares of %q", round, given)
		sums := map[field.ID]float64{}
		var keys []string
		for i, v := range s.Values {
			if v == v {
				sums[s.Series[i].Field] += v
			}
			keys = append(keys, fmt.Sprint(s.Series[i].Field, labelText(s.Series[i].Owner)))
		}
		if sums[fbUsed]*mebibyte != bytes || sums[gpuUtil] != busy {
			t.Errorf("round %d: %v bytes and %v %%, want %v and %v", round, sums[fbUsed]*mebibyte, sums[gpuUtil], bytes, busy)
		}
		slices.Sort(keys)
		testkit.Equal(t, fmt.Sprintf("round %d: each series once in %q", round, keys), len(keys), len(slices.Compact(slices.Clone(keys))))
	}
}
