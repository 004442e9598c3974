package apitest

import (
	"context"
	"testing"

	resource "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// TestClientGoReadsIt compares the server's objects with those that client-go decodes.
func TestClientGoReadsIt(t *testing.T) {
	s := Start(t, "node-1")
	s.Slices(Slice("gpu.nvidia.com", "node-1", map[string]Attributes{"gpu-0": {"uuid": "GPU-1", "index": 3}}))
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	of := metav1.ListOptions{FieldSelector: "spec.nodeName=node-1"}
	slices := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"})
	list, err := slices.List(context.Background(), of)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("slices %+v, %v", list, err)
	}
	var got resource.ResourceSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(list.Items[0].Object, &got, true); err != nil {
		t.Fatal(err)
	}
	d := got.Spec.Devices[0]
	if got.Spec.Driver != "gpu.nvidia.com" || got.Spec.Pool.Name != "node-1" || d.Name != "gpu-0" ||
		*d.Attributes["uuid"].StringValue != "GPU-1" || *d.Attributes["index"].IntValue != 3 {
		t.Errorf("slice %+v", got.Spec)
	}
	s.Versions("v1beta1")
	if _, err := slices.List(context.Background(), of); err == nil {
		t.Error("a version that is not served is")
	}
}
