package podmeta

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	podsV1   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	slicesV1 = schema.GroupVersionResource{Group: resourceGroup, Version: "v1", Resource: "resourceslices"}
)

// fakeClients are client-go's own fakes. They do not filter; see the tests on the
// wire for that. Their lists have no version, which real ones always have.
func fakeClients(t *testing.T, objects ...runtime.Object) (*clients, *metadatafake.FakeMetadataClient, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pods := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	slices := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{slicesV1: "ResourceSliceList"})
	versioned := func(tracker clienttesting.ObjectTracker, r schema.GroupVersionResource, kind schema.GroupVersionKind) clienttesting.ReactionFunc {
		return func(clienttesting.Action) (bool, runtime.Object, error) {
			list, err := tracker.List(r, kind, "")
			if err != nil {
				return true, nil, err
			}
			list.(metav1.ListInterface).SetResourceVersion("1")
			return true, list, nil
		}
	}
	pods.PrependReactor("list", "pods", versioned(pods.Tracker(), podsV1, schema.GroupVersionKind{Group: "fake-metadata-client-group", Version: "v1"}))
	slices.PrependReactor("list", "resourceslices", versioned(slices.Tracker(), slicesV1, slicesV1.GroupVersion().WithKind("ResourceSlice")))
	return &clients{pods: pods, slices: slices, close: func() {},
		versions: func(context.Context, string) ([]string, error) { return []string{"v1"}, nil }}, pods, slices
}

func partialPod(namespace, name, uid string, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Labels: labels},
	}
}

func TestBothLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, pods, slices := fakeClients(t, partialPod("ml", "a", "uid-a", map[string]string{"app": "x"}))
		var changes atomic.Int64
		var versions []uint64
		o := Options{Node: "node-1", Pods: true, Slices: true, dial: func() (*clients, error) { return c, nil }}
		o.OnChange = func() { changes.Add(1) }
		client := New(o)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- client.Run(ctx) }()
		see := func() *Snapshot {
			synctest.Wait()
			s := client.Snapshot()
			versions = append(versions, s.Version)
			return s
		}
		s := see()
		if s.Time.IsZero() || s.PodsTime.IsZero() || s.SlicesTime.IsZero() {
			t.Errorf("times %v, %v, %v", s.Time, s.PodsTime, s.SlicesTime)
		}
		if diff := cmp.Diff(map[PodName]Pod{{"ml", "a"}: {UID: "uid-a"}}, s.Pods); diff != "" {
			t.Errorf("pods (-want +got):\n%s", diff)
		}
		gpu := sliceObject("s", driverNVIDIA, "node-1", 1, 1, gpuObject("gpu-0", "GPU-1"))
		if _, err := slices.Resource(slicesV1).Create(ctx, &unstructured.Unstructured{Object: clone(gpu)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := see().Slices[DeviceName{driverNVIDIA, "node-1", "gpu-0"}].UUID; got != "GPU-1" {
			t.Errorf("uuid %q", got)
		}
		if err := pods.Tracker().Delete(podsV1, "ml", "a"); err != nil {
			t.Fatal(err)
		}
		s = see()
		if len(s.Pods) != 0 || len(s.ByUID) != 0 || len(s.Slices) != 1 {
			t.Errorf("after the pod has gone: %+v", s)
		}
		if diff := cmp.Diff([]uint64{2, 3, 4}, versions); diff != "" {
			t.Errorf("versions (-want +got):\n%s", diff)
		}
		if got := changes.Load(); got != 4 {
			t.Errorf("told of %d changes, want 4", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// Time is that of the list that was confirmed longer ago.
func TestTimeOfTwoLists(t *testing.T) {
	both, podsOnly, slicesOnly := New(Options{Pods: true, Slices: true}), New(Options{Pods: true}), New(Options{Slices: true})
	at := func(c *Client, pods, slices int64) int64 {
		s := &Snapshot{PodsTime: unix(pods), SlicesTime: unix(slices)}
		return c.confirmed(s).Unix()
	}
	for _, test := range []struct {
		c            *Client
		pods, slices int64
		want         int64
	}{
		{both, 10, 20, 10}, {both, 20, 10, 10}, {both, 0, 10, 0}, {podsOnly, 20, 0, 20}, {slicesOnly, 0, 20, 20},
	} {
		if got := at(test.c, test.pods, test.slices); got != unix(test.want).Unix() {
			t.Errorf("pods at %d, slices at %d: confirmed at %d, want %d", test.pods, test.slices, got, test.want)
		}
	}
}
