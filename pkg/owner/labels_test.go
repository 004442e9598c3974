package owner

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

func TestPodLabels(t *testing.T) {
	k := newRig(func(o *Options) { o.PodLabels = true }).Keeper
	f := func(what string, in map[string]string, want []collector.Label, lost losses) {
		t.Helper()
		var got losses
		testkit.Equal(t, what, want, podLabels(in, k.reserved, &got))
		testkit.ErrorIf(t, got != lost, "%s: lost %+v, want %+v", what, got, lost)
	}
	type m = map[string]string
	type l = []collector.Label
	f("none", nil, nil, losses{})
	f("two, by name", m{"b": "1", "a.x": "2"}, l{{Name: "a_x", Value: "2"}, {Name: "b", Value: "1"}}, losses{})
	f("sorted by what they become", m{"a.z": "1", "a-a": "2"}, l{{Name: "a_a", Value: "2"}, {Name: "a_z", Value: "1"}}, losses{})
	f("names that Prometheus does not allow", m{"3scale.net/created-by": "1", "grün": "2", "a\xffb": "3", "__meta": "4", "-_x": "5", "___": "6", "Team_1": "7"},
		l{{Name: "Team_1", Value: "7"}, {Name: "_", Value: "6"}, {Name: "_3scale_net_created_by", Value: "1"}, {Name: "_meta", Value: "4"}, {Name: "_x", Value: "5"}, {Name: "a_b", Value: "3"}, {Name: "gr_n", Value: "2"}}, losses{})
	f("two that become one", m{"a.x": "second", "a-x": "first", "a/x": "third"}, l{{Name: "a_x", Value: "first"}}, losses{duplicate: 2})
	f("ours", m{"pod": "x", "namespace": "x", "container": "x", "gpu": "x", "UUID": "x", "hostname": "x", "vgpu": "x", "hpc-job": "x", "err.code": "x", "le": "x", "app": "x", "dra-claim.name": "x"},
		l{{Name: "app", Value: "x"}}, losses{reserved: 11})
	f("not ours", m{"uuid": "x", "pod_name": "x", "Hostname": "x"}, l{{Name: "Hostname", Value: "x"}, {Name: "pod_name", Value: "x"}, {Name: "uuid", Value: "x"}}, losses{})
	f("nothing said", m{"app": "", "": "x"}, nil, losses{})
	f("text of any kind", m{"a": "q\"\\\n\xff"}, l{{Name: "a", Value: "q\"\\\n\xff"}}, losses{}) // the page escapes such text

	long := strings.Repeat("x", maxPodText-1)
	f("the longest", m{"a": long + "y"}, l{{Name: "a", Value: long + "y"}}, losses{})
	f("a longer one", m{"a": long + "é"}, l{{Name: "a", Value: long}}, losses{cut: 1})

	many := m{}
	for i := range maxPodLabels + 5 {
		many[fmt.Sprintf("l%03d", i)] = "v"
	}
	var lost losses
	got := podLabels(many, k.reserved, &lost)
	testkit.ErrorIf(t, len(got) != maxPodLabels || got[0].Name != "l000" || lost != (losses{many: 5}), "%d labels of %d, lost %+v", len(got), len(many), lost)

	k = newRig(func(o *Options) { o.PodLabels, o.OldNamespace, o.Hostname = true, true, "Hostname" }).Keeper
	f("ours of old", m{"uuid": "x", "pod_name": "x", "pod_namespace": "x", "container_name": "x", "Hostname": "x", "pod": "1", "UUID": "2", "hostname": "3"},
		l{{Name: "UUID", Value: "2"}, {Name: "hostname", Value: "3"}, {Name: "pod", Value: "1"}}, losses{reserved: 5})
}

// Audit K10: the API server deletes a pod before the kubelet stops listing it. All labels of the pod disappear in the
// same change.
func TestLabelsOfAPodLeaveTogether(t *testing.T) {
	r := newRig(func(o *Options) { o.PodLabels, o.PodUID = true, true }, machine()...)
	r.know("ml/a uid-a team=x").give("ml/a/main: nvidia.com/gpu " + uuid(1))
	whole := "team=x | container=main namespace=ml pod=a pod_uid=uid-a"
	f := func(when string, version uint64, want ...string) {
		t.Helper()
		r.wants(t, when, uuid(1), want...)
		testkit.Equal(t, when+": version", version, r.Version())
	}
	version := r.Version()
	f("both know it", version, whole)
	r.know()
	f("the API server has deleted it", version, whole)
	r.know("ml/other uid-o")
	f("and something else has changed", version, whole)
	r.give()
	f("the kubelet no longer lists it", version+1)
	r.give("ml/a/main: nvidia.com/gpu " + uuid(1))
	f("a pod of that name is not the old one", version+2, "container=main namespace=ml pod=a")
	r.know("ml/a uid-b")
	f("and has its metadata", version+3, "container=main namespace=ml pod=a pod_uid=uid-b")
}

var legalLabel = regexp.MustCompile(`^([a-zA-Z]|_[a-zA-Z0-9]?)[a-zA-Z0-9_]*$`)

// FuzzPodLabels: for any pod labels, names are valid, not reserved and unique, and values are valid UTF-8 of bounded
// length.
func FuzzPodLabels(f *testing.F) {
	f.Add("app.kubernetes.io/name", "x", "app-kubernetes-io-name", "y")
	f.Add("pod", "a", "__name__", "b")
	f.Add("0", "\xc3", "0", "\x89") // together they would form one character
	f.Add("9", strings.Repeat("é", 600), "", "")
	k := newRig(func(o *Options) { o.PodLabels = true }).Keeper
	f.Fuzz(func(t *testing.T, key, value, key2, value2 string) {
		var lost losses
		last := ""
		in := map[string]string{key: value, key2: value2, "fixed": "1"}
		got := podLabels(in, k.reserved, &lost)
		for _, l := range got {
			testkit.ErrorIf(t, !legalLabel.MatchString(l.Name) || k.reserved[l.Name] || l.Name <= last || l.Value == "", "%q: label %q = %q after %q", in, l.Name, l.Value, last)
			last = l.Name
			if len(l.Value) > maxPodText || utf8.ValidString(value) && utf8.ValidString(value2) && !utf8.ValidString(l.Value) {
				t.Errorf("%q: value of %d bytes", in, len(l.Value))
			}
		}
		told := 0
		for k, v := range in {
			if k != "" && v != "" {
				told++
			}
		}
		testkit.Equal(t, fmt.Sprintf("%q: labels told, with %+v lost", in, lost), len(got)+lost.reserved+lost.duplicate, told)
	})
}
