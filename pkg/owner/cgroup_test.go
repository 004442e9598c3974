package owner

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// The cases shorten IDs: a pod's UID in three spellings, containers.
const (
	uidA  = "7d4424e6-bb13-42f4-a47a-45a4828bf54d"
	uidAs = "7d4424e6_bb13_42f4_a47a_45a4828bf54d"
	uidB  = "1e597579-417e-482f-bf65-5fe170c3aebd"
	uidBs = "1e597579_417e_482f_bf65_5fe170c3aebd"
	hash  = "8daa50c3a64c9ff60bb9eab7b44b56fd"
	ctrA  = "d0b3604b67ac7930dd34ba3a796627e3e4717d12309e90a4afe3f38b6816ac98"
	ctrB  = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e"
	node  = "88ea268ece65a02d68b169fd74bcbcb427eb7f28900db0e3b906fb2eeb7341df" // a container that runs a node
)

// expand replaces the short IDs by full ones.
var expand = strings.NewReplacer(
	"<UID_A>", uidAs, "<UID-A>", uidA, "<UID_B>", uidBs, "<UID-B>", uidB, "<HASH>", hash,
	"<CTR-A>", ctrA, "<CTR-B>", ctrB, "<NODE>", node)

// tree is a case of testdata/cgroups.txt.
type tree struct{ name, seen, file, own, want string }

// trees returns the cases, with full IDs.
func trees(tb testing.TB) (out []tree) {
	tb.Helper()
	text := testkit.Get(os.ReadFile("testdata/cgroups.txt"))(tb)
	for _, block := range strings.Split(expand.Replace(string(text)), "\n\n")[1:] {
		name, rest, _ := strings.Cut(block, "\n")
		c := tree{name: name}
		for line := range strings.Lines(strings.TrimSuffix(rest, "\n") + "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch key {
			case "seen":
				c.seen = value
			case "own":
				c.own += value
			case "want":
				c.want = strings.TrimSpace(value)
			default:
				c.file += line
			}
		}
		out = append(out, c)
	}
	testkit.FatalIf(tb, len(out) != 60, "%d cases", len(out))
	return out
}

func TestControlGroups(t *testing.T) {
	for _, c := range trees(t) {
		t.Run(c.name, func(t *testing.T) {
			own := cmp.Or(c.own, "0::/system.slice/warpgauge.service\n1:name=systemd:/system.slice/warpgauge.service")
			got, ok := parseCgroup([]byte(c.file), surroundingsOf([]byte(own), false))
			found := got.pod + "/" + got.container + "/" + got.job
			testkit.ErrorIf(t, !ok || got.unknown || found != c.want, "%s\nseen: %s\ngot  %+v, %v\nwant %s", c.file, c.seen, got, ok, c.want)
		})
	}
}

// TestWhatOurOwnNamespaceHides: inside our own cgroup namespace, paths in our own group or below it name no pod,
// although the processes run in our pod.
func TestWhatOurOwnNamespaceHides(t *testing.T) {
	f := func(file string, want location) {
		t.Helper()
		got, ok := parseCgroup([]byte(expand.Replace(file)), surroundingsOf([]byte("0::/\n4:memory:/\n"), true))
		testkit.ErrorIf(t, !ok || got != want, "%s: got %+v, %v, want %+v", file, got, ok, want)
	}
	f("0::/\n", location{unknown: true})
	f("0::/init.scope\n", location{unknown: true})
	f("4:memory:/\n0::/\n", location{unknown: true})
	f("0::/../../../system.slice/nvidia-persistenced.service\n", location{})
	f("0::/..\n", location{})
	f("0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod<UID_B>.slice/cri-containerd-<CTR-B>.scope\n", location{pod: uidB, container: ctrB})
}

func TestBrokenControlGroups(t *testing.T) {
	f := func(file string, want location, wantOK bool) {
		t.Helper()
		got, ok := parseCgroup([]byte(expand.Replace(file)), surroundings{})
		testkit.ErrorIf(t, ok != wantOK || got != want, "%q: got %+v, %v, want %+v, %v", file, got, ok, want, wantOK)
	}
	f("", location{}, false)
	f("\n\n", location{}, false)
	f("0:", location{}, false)
	f("0::", location{}, false)
	f("0::kubepods/pod<UID-A>", location{}, false)
	f("nonsense\n0::/kubepods/pod<UID-A>/<CTR-A>", location{pod: uidA, container: ctrA}, true)
	f("0::/kubepods/pod<UID-A>0/<CTR-A>", location{container: ctrA}, true)
	f("0::/kubepods/pod/<CTR-A>", location{container: ctrA}, true)
	f("0::/kubepods/podzzzzzzzz-bb13-42f4-a47a-45a4828bf54d/x", location{}, true)
	f("0::/kubepods/pod<UID-A>/<CTR-A>0", location{pod: uidA}, true)
	f("0::/slurm/job_/job_x/job_123456789012345678901", location{}, true)
	f("0::////::::/", location{}, true)
}

// FuzzControlGroups: containers choose the names of the groups below their own.
func FuzzControlGroups(f *testing.F) {
	for _, c := range trees(f) {
		f.Add([]byte(c.file), []byte(c.own), false)
	}
	f.Add([]byte("0::/\n"), []byte("0::/\n"), true)
	f.Fuzz(func(t *testing.T, file, own []byte, nested bool) {
		p, ok := parseCgroup(file, surroundingsOf(own, nested))
		testkit.ErrorIf(t, !ok && p != (location{}), "no line is valid, and yet %+v", p)
		testkit.ErrorIf(t, p.pod != "" && !regexp.MustCompile(`^[[:xdigit:]-]{32,36}$`).MatchString(p.pod), "pod %q", p.pod)
		testkit.ErrorIf(t, p.container != "" && !regexp.MustCompile(`^[[:xdigit:]]{64}$`).MatchString(p.container), "container %q", p.container)
		testkit.ErrorIf(t, p.job != "" && strings.Trim(p.job, "0123456789") != "", "job %q", p.job)
		testkit.ErrorIf(t, p.unknown && (!nested || p != location{unknown: true}), "unknown: %+v, nested %v", p, nested)
	})
}
