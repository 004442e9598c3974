package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// The controllers and the scheduler decide where pods are. They need no kubelet for that, so these nodes have none.

// addNode makes a node with labels, room for pods, and the resources that its device plugin offers.
func (n *node) addNode(name string, labels map[string]string, offers ...corev1.ResourceName) {
	nodes := n.client.CoreV1().Nodes()
	get(nodes.Create(n.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}))
	room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("20")}
	for _, o := range offers {
		room[o] = resource.MustParse("8")
	}
	must(retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controllers write to it, too
		made := get(nodes.Get(n.ctx, name, metav1.GetOptions{}))
		made.Status.Capacity, made.Status.Allocatable = room, room
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NoKubelet"}}
		_, err := nodes.UpdateStatus(n.ctx, made, metav1.UpdateOptions{})
		return err
	}))
}

// upgrade installs or upgrades a release of the package in a namespace and returns its notes.
func (n *node) upgrade(namespace string, args ...string) string {
	return n.helm(append([]string{"upgrade", "--install", "warpgauge", n.chart, "--namespace", namespace}, args...)...)
}

// withRelease runs a check, and then removes what it has made: the release, with its pods, and the nodes.
func (n *node) withRelease(namespace string, nodes []string, check func()) {
	errs := []error{try(check), try(func() { n.helm("uninstall", "warpgauge", "--namespace", namespace, "--wait=false") })}
	for _, name := range nodes {
		errs = append(errs, n.client.CoreV1().Nodes().Delete(n.ctx, name, metav1.DeleteOptions{}))
	}
	// No kubelet confirms that the pods have ended.
	errs = append(errs, try(func() { n.kubectl("--namespace", namespace, "delete", "pods", "--all", "--force", "--grace-period=0") }))
	must(errs...)
}

// pods returns NODE/VENDOR of the release's pods that have a node and are not ending, sorted.
func (n *node) pods(namespace string) (out []string) {
	pods := n.client.CoreV1().Pods(namespace)
	for _, p := range get(pods.List(n.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=warpgauge"})).Items {
		switch {
		case p.DeletionTimestamp != nil: // a kubelet would say that it has ended
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

func (n *node) placement() (notes string) {
	const namespace = "placement"
	nvidiaLabel, amdLabel := "nvidia.com/gpu.present", "feature.node.kubernetes.io/amd-gpu"
	n.withRelease(namespace, []string{"nvidia", "amd", "both", "pool", "plain"}, func() {
		n.addNode("nvidia", map[string]string{nvidiaLabel: "true"})
		n.addNode("amd", map[string]string{amdLabel: "true"})
		n.addNode("both", map[string]string{nvidiaLabel: "true", amdLabel: "true"})
		n.addNode("pool", map[string]string{"pool": "gpu"}, gpu) // as labelled by hand, or by a cloud
		n.addNode("plain", nil)
		expect := func(why string, want ...string) {
			n.wait(30*time.Second, func() {
				if got := n.pods(namespace); !slices.Equal(got, want) {
					fail("%s: pods are at %q, want %q", why, got, want)
				}
			})
		}
		_, notes, _ = strings.Cut(n.upgrade(namespace, "--create-namespace", "--set", "lookup=true"), "NOTES:")
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
		// Who may do everything in the namespace, and nothing else.
		n.kubectl("--namespace", namespace, "create", "rolebinding", "installer", "--clusterrole=admin", "--user=installer")
		if err := try(func() { n.upgrade(namespace, "--kube-as-user", "installer", "--set", "lookup=true") }); err == nil || !strings.Contains(err.Error(), `cannot list resource "nodes"`) {
			fail("a user who may not list nodes installs with notes that list them: %v", err)
		}
		n.upgrade(namespace, "--kube-as-user", "installer", "--reset-values")
		n.upgrade(namespace, "--set", "nodeSelector.pool=gpu")
		expect("nodeSelector", "pool/nvidia")
	})
	return notes
}

func (n *node) adminAccess() (text string) {
	const namespace, host = "admin-access", "claims"
	n.withRelease(namespace, []string{host}, func() {
		n.addNode(host, map[string]string{"nvidia.com/gpu.deploy.dcgm-exporter-dra": "true"})
		text = n.shareClaim(namespace, host)
	})
	return strings.TrimSpace(text)
}

// shareClaim gives a node's only GPU to a pod and to the chart's pod, and returns what the API server says of the latter.
func (n *node) shareClaim(namespace, host string) (text string) {
	manifest := strings.NewReplacer("NAMESPACE", namespace, "NODE", host, "DRIVER", draDriverName).Replace(`
apiVersion: v1
kind: Namespace
metadata: { name: NAMESPACE, labels: { resource.kubernetes.io/admin-access: "true" } }
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: { name: DRIVER }
spec: { selectors: [{ cel: { expression: device.driver == 'DRIVER' } }] }
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: { name: NODE-gpus }
spec:
  driver: DRIVER
  nodeName: NODE
  pool: { name: NODE, generation: 1, resourceSliceCount: 1 }
  devices: [{ name: gpu-0, attributes: { uuid: { string: GPU-0 }, type: { string: gpu } } }]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: { name: user, namespace: NAMESPACE }
spec: { devices: { requests: [{ name: gpu, exactly: { deviceClassName: DRIVER } }] } }
---
apiVersion: v1
kind: Pod
metadata: { name: user, namespace: NAMESPACE }
spec:
  automountServiceAccountToken: false
  tolerations: [{ operator: Exists }]
  resourceClaims: [{ name: gpu, resourceClaimName: user }]
  containers: [{ name: trainer, image: "pause:e2e", resources: { claims: [{ name: gpu }] } }]
`)
	// Only when the namespace is there can something be made in it.
	for part := range strings.SplitSeq(manifest, "---\n") {
		n.apply(part)
	}
	n.upgrade(namespace, "--values", filepath.Join(n.repo, "deploy/helm/values/gpu-operator-dra.yaml"))
	var claims []resourceapi.ResourceClaim
	n.wait(30*time.Second, func() {
		claims = get(n.client.ResourceV1().ResourceClaims(namespace).List(n.ctx, metav1.ListOptions{})).Items
		if len(claims) != 2 || slices.ContainsFunc(claims, func(c resourceapi.ResourceClaim) bool { return c.Status.Allocation == nil }) {
			fail("%d claims, not all of them allocated", len(claims))
		}
	})
	for line := range strings.Lines(n.kubectl("api-versions")) {
		version, ok := strings.CutPrefix(strings.TrimSpace(line), "resource.k8s.io/")
		if !ok || !strings.HasPrefix(version, "v1") {
			continue
		}
		for _, c := range claims {
			raw := n.kubectl("get", "--raw", "/apis/resource.k8s.io/"+version+"/namespaces/"+namespace+"/resourceclaims/"+c.Name)
			// As pkg/kube reads it.
			var claim struct {
				Status struct {
					Allocation struct {
						Devices struct {
							Results []struct {
								Driver, Pool, Device string
								AdminAccess          bool
							}
						}
					}
				}
			}
			must(json.Unmarshal([]byte(raw[max(0, strings.Index(raw, "{")):]), &claim)) // kubectl warns of old versions
			results := claim.Status.Allocation.Devices.Results
			if len(results) != 1 || results[0].Device != "gpu-0" || results[0].AdminAccess != (c.Name != "user") {
				fail("%s: claim %s has %+v", version, c.Name, results)
			}
			if c.Name != "user" {
				text += fmt.Sprintf("%s: %+v\n", version, results[0])
			}
		}
	}
	return text
}
