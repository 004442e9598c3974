package podmeta

import (
	"fmt"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// manyPods are a dense node's, each with 20 labels, of which 5 are kept.
func manyPods(n int) []any {
	pods := make([]any, 0, n)
	for i := range n {
		p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: fmt.Sprintf("train-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i))}}
		p.Labels = make(map[string]string)
		for l := range 20 {
			p.Labels[fmt.Sprintf("example.com/label-%02d", l)] = fmt.Sprintf("value-%d-%d", i, l)
		}
		pods = append(pods, p)
	}
	return pods
}

func newPodStore(b *testing.B) (*Client, *podStore) {
	c := New(Options{Node: "node-1", Pods: true, KeepLabel: regexp.MustCompile("label-0[0-4]$").MatchString})
	return c, c.podFeed().store.(*podStore)
}

// One of 250 pods changes a label, and everything is published anew.
func BenchmarkPodChanges(b *testing.B) {
	c, s := newPodStore(b)
	pods := manyPods(250)
	if err := s.Replace(pods, "1"); err != nil {
		b.Fatal(err)
	}
	p := pods[7].(*metav1.PartialObjectMetadata)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p.Labels["example.com/label-00"] = fmt.Sprint(i)
		if err := s.Update(p); err != nil {
			b.Fatal(err)
		}
	}
	if got := c.Snapshot().Version; got != uint64(i+1) || len(c.Snapshot().Pods) != 250 {
		b.Fatalf("version %d after %d changes", got, i)
	}
}

// One of 250 pods changes something that is not kept, as most events do.
func BenchmarkPodStatusChanges(b *testing.B) {
	c, s := newPodStore(b)
	pods := manyPods(250)
	if err := s.Replace(pods, "1"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Update(pods[7]); err != nil {
			b.Fatal(err)
		}
	}
	if got := c.Snapshot().Version; got != 1 {
		b.Fatalf("version %d", got)
	}
}

// A list of 250 pods comes that says nothing new.
func BenchmarkPodList(b *testing.B) {
	c, s := newPodStore(b)
	pods := manyPods(250)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Replace(pods, "1"); err != nil {
			b.Fatal(err)
		}
	}
	if got := c.Snapshot(); got.Version != 1 || len(got.Pods) != 250 || len(got.Pods[PodName{"ml", "train-7"}].Labels) != 5 {
		b.Fatalf("version %d, %d pods", got.Version, len(got.Pods))
	}
}

// Slices of 8 GPUs with 7 MIG devices each, in a slice for each GPU.
func BenchmarkJoinSlices(b *testing.B) {
	all := make(map[string]slice)
	for gpu := range 8 {
		s := slice{pool: poolName{driverNVIDIA, "node-1"}, generation: 3, count: 8}
		for mig := range 8 {
			name := fmt.Sprintf("gpu-%d-mig-1g12gb-19-%d", gpu, mig)
			s.devices = append(s.devices, namedDevice{name, deviceOf(driverNVIDIA, name, attributes{driver: driverNVIDIA})})
		}
		all[fmt.Sprint(gpu)] = s
	}
	before := join(all, nil)
	b.ReportAllocs()
	for b.Loop() {
		if len(join(all, before)) != 64 {
			b.Fatal("devices are missing")
		}
	}
}
