package main

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// The controllers and the scheduler place pods without a kubelet, so these nodes have none.

// addNode makes a node with labels, room for pods, and the resources that its device plugin offers.
func (n *node) addNode(name string, labels map[string]string, offers ...corev1.ResourceName) {
	nodes := n.client.CoreV1().Nodes()
	get(nodes.Create(n.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
	room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("20")}
	for _, o := range offers {
		room[o] = resource.MustParse("8")
	}
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controllers also write to it
		made := get(nodes.Get(n.ctx, name, metav1.GetOptions{}))
		made.Status.Capacity, made.Status.Allocatable = room, room
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NoKubelet"}}
		_, err := nodes.UpdateStatus(n.ctx, made, metav1.UpdateOptions{})
		return err
	}))
}

// pods returns NODE/VENDOR for the release's scheduled pods that are not ending, sorted.
func (n *node) pods(namespace string) (out []string) {
	pods := n.client.CoreV1().Pods(namespace)
	for _, p := range get(pods.List(n.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=warpgauge"})).Items {
		switch {
		case p.DeletionTimestamp != nil: // no kubelet reports its end
			if err := pods.Delete(n.ctx, p.Name, *metav1.NewDeleteOptions(0)); !apierrors.IsNotFound(err) {
				must(err)
			}
		case p.Spec.NodeName != "":
			out = append(out, p.Spec.NodeName+"/"+p.Labels["app.kubernetes.io/component"])
		}
	}
	slices.Sort(out)
	return out
}

const placed = "placement" // namespace

func (n *node) placement() (notes string) {
	errs := []error{try(func() { notes = n.place() })}
	errs = append(errs, try(func() { n.helm("uninstall", "warpgauge", "--namespace", placed, "--wait=false") }))
	for _, name := range []string{"nvidia", "amd", "both", "pool", "plain"} {
		errs = append(errs, n.client.CoreV1().Nodes().Delete(n.ctx, name, metav1.DeleteOptions{}))
	}
	// No kubelet confirms that the pods have ended.
	errs = append(errs, try(func() { n.kubectl("--namespace", placed, "delete", "pods", "--all", "--force", "--grace-period=0") }))
	must(errs...)
	return notes
}

func (n *node) place() (notes string) {
	nvidiaLabel, amdLabel := "nvidia.com/gpu.present", "feature.node.kubernetes.io/amd-gpu"
	n.addNode("nvidia", map[string]string{nvidiaLabel: "true"})
	n.addNode("amd", map[string]string{amdLabel: "true"})
	n.addNode("both", map[string]string{nvidiaLabel: "true", amdLabel: "true"})
	n.addNode("pool", map[string]string{"pool": "gpu"}, gpu) // as labelled by hand, or by a cloud
	n.addNode("plain", nil)
	upgrade := func(args ...string) string {
		return n.helm(append([]string{"upgrade", "--install", "warpgauge", n.chart, "--namespace", placed}, args...)...)
	}
	expect := func(why string, want ...string) {
		n.wait(30*time.Second, func() {
			if got := n.pods(placed); !slices.Equal(got, want) {
				fail("%s: pods are at %q, want %q", why, got, want)
			}
		})
	}
	_, notes, _ = strings.Cut(upgrade("--create-namespace", "--set", "lookup=true"), "NOTES:")
	notes = strings.TrimSpace(notes)
	for _, want := range []string{
		"nodes that get a pod for NVIDIA GPUs: 2 of 6; nodes that get a pod for AMD GPUs: 2 of 6", // the sixth node belongs to the check of health
		"nodes that offer nvidia.com/gpu and get no pod: 1, such as pool", "helm -n placement test warpgauge",
	} {
		if !strings.Contains(notes, want) {
			fail("the notes lack %q:\n%s", want, notes)
		}
	}
	all := []string{"amd/amd", "both/amd", "both/nvidia", "nvidia/nvidia"}
	expect("installed", all...)
	for _, label := range []string{"gpu.deploy.client=paused-for-driver-upgrade", "gpu.deploy.dcgm-exporter=paused-for-mig-change", "gpu.deploy.dcgm-exporter-dra=paused-for-driver-upgrade"} {
		name, _, _ := strings.Cut(label, "=")
		n.kubectl("label", "node", "nvidia", "nvidia.com/"+label)
		expect(label, "amd/amd", "both/amd", "both/nvidia")
		n.kubectl("label", "node", "nvidia", "nvidia.com/"+name+"-")
		expect("after "+label, all...)
	}
	// A user who may do everything in the namespace, and nothing elsewhere.
	n.kubectl("--namespace", placed, "create", "rolebinding", "installer", "--clusterrole=admin", "--user=installer")
	if err := try(func() { upgrade("--kube-as-user", "installer", "--set", "lookup=true") }); err == nil || !strings.Contains(err.Error(), `cannot list resource "nodes"`) {
		fail("a user who may not list nodes installs with notes that list them: %v", err)
	}
	upgrade("--kube-as-user", "installer", "--reset-values")
	upgrade("--set", "nodeSelector.pool=gpu")
	expect("nodeSelector", "pool/nvidia")
	return notes
}
