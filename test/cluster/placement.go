package main

import (
	"encoding/json"
	"errors"
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
func (n *node) addNode(name string, labels map[string]string, offers ...corev1.ResourceName) error {
	nodes := n.client.CoreV1().Nodes()
	if _, err := nodes.Create(n.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("20")}
	for _, o := range offers {
		room[o] = resource.MustParse("8")
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controllers write to it, too
		made, err := nodes.Get(n.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Status.Capacity, made.Status.Allocatable = room, room
		made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NoKubelet"}}
		_, err = nodes.UpdateStatus(n.ctx, made, metav1.UpdateOptions{})
		return err
	})
}

// helm installs or upgrades a release of the package in a namespace and returns its notes.
func (n *node) helm(namespace string, args ...string) (string, error) {
	return n.command("", n.dir, n.tools.helm, append([]string{"upgrade", "--install", "warpgauge", n.chart, "--namespace", namespace}, args...)...)
}

// removeRelease ends what a check has made: the release, with its pods, and the nodes.
func (n *node) removeRelease(namespace string, nodes []string) error {
	_, err := n.command("", n.dir, n.tools.helm, "uninstall", "warpgauge", "--namespace", namespace, "--wait=false")
	for _, name := range nodes {
		err = errors.Join(err, n.client.CoreV1().Nodes().Delete(n.ctx, name, metav1.DeleteOptions{}))
	}
	// No kubelet confirms that the pods have ended.
	_, e := n.kubectl("", "--namespace", namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
	return errors.Join(err, e)
}

// pods returns NODE/VENDOR of the release's pods that have a node and are not ending, sorted.
func (n *node) pods(namespace string) ([]string, error) {
	list, err := n.client.CoreV1().Pods(namespace).List(n.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=warpgauge"})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		p := &list.Items[i]
		switch {
		case p.DeletionTimestamp != nil: // a kubelet would say that it has ended
			now := int64(0)
			if err := n.client.CoreV1().Pods(namespace).Delete(n.ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
		case p.Spec.NodeName != "":
			out = append(out, p.Spec.NodeName+"/"+p.Labels["app.kubernetes.io/component"])
		}
	}
	slices.Sort(out)
	return out, nil
}

func (n *node) placement() (text string, err error) {
	const namespace = "placement"
	names := []string{"nvidia", "amd", "both", "pool", "plain"}
	for i, labels := range []map[string]string{
		{"nvidia.com/gpu.present": "true"},
		{"feature.node.kubernetes.io/amd-gpu": "true"},
		{"nvidia.com/gpu.present": "true", "feature.node.kubernetes.io/amd-gpu": "true"},
		{"pool": "gpu"}, // as labelled by hand, or by a cloud
		nil,
	} {
		var offers []corev1.ResourceName
		if names[i] == "pool" {
			offers = append(offers, gpu)
		}
		if err := n.addNode(names[i], labels, offers...); err != nil {
			return "", err
		}
	}
	defer func() { err = errors.Join(err, n.removeRelease(namespace, names)) }()
	expect := func(want ...string) error {
		return n.wait(30*time.Second, func() error {
			got, err := n.pods(namespace)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("pods are at %q, want %q", got, want)
			}
			return err
		})
	}
	notes, err := n.helm(namespace, "--create-namespace", "--set", "lookup=true")
	if err != nil {
		return "", err
	}
	_, notes, _ = strings.Cut(notes, "NOTES:")
	for _, want := range []string{
		"nodes that get a pod for NVIDIA GPUs: 2 of 6; nodes that get a pod for AMD GPUs: 2 of 6", // the sixth node belongs to the check of health
		"nodes that offer nvidia.com/gpu and get no pod: 1, such as pool", "helm -n placement test warpgauge",
	} {
		if !strings.Contains(notes, want) {
			return "", fmt.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	all := []string{"amd/amd", "both/amd", "both/nvidia", "nvidia/nvidia"}
	if err := expect(all...); err != nil {
		return "", err
	}
	for _, label := range []string{"gpu.deploy.client=paused-for-driver-upgrade", "gpu.deploy.dcgm-exporter=paused-for-mig-change", "gpu.deploy.dcgm-exporter-dra=paused-for-driver-upgrade"} {
		name, _, _ := strings.Cut(label, "=")
		if _, err := n.kubectl("", "label", "node", "nvidia", "nvidia.com/"+label); err != nil {
			return "", err
		}
		if err := expect("amd/amd", "both/amd", "both/nvidia"); err != nil {
			return "", fmt.Errorf("%s: %w", label, err)
		}
		if _, err := n.kubectl("", "label", "node", "nvidia", "nvidia.com/"+name+"-"); err != nil {
			return "", err
		}
		if err := expect(all...); err != nil {
			return "", fmt.Errorf("after %s: %w", label, err)
		}
	}
	// Who may do everything in the namespace, and nothing else.
	if _, err := n.kubectl("", "--namespace", namespace, "create", "rolebinding", "installer", "--clusterrole=admin", "--user=installer"); err != nil {
		return "", err
	}
	if _, err := n.helm(namespace, "--kube-as-user", "installer", "--set", "lookup=true"); err == nil || !strings.Contains(err.Error(), `cannot list resource "nodes"`) {
		return "", fmt.Errorf("a user who may not list nodes installs with notes that list them: %w", err)
	}
	if _, err := n.helm(namespace, "--kube-as-user", "installer", "--reset-values"); err != nil {
		return "", err
	}
	if _, err := n.helm(namespace, "--set", "nodeSelector.pool=gpu"); err != nil {
		return "", err
	}
	return strings.TrimSpace(notes), expect("pool/nvidia")
}

func (n *node) adminAccess() (text string, err error) {
	const namespace, host = "admin-access", "claims"
	if err := n.addNode(host, map[string]string{"nvidia.com/gpu.deploy.dcgm-exporter-dra": "true"}); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, n.removeRelease(namespace, []string{host})) }()
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
		if _, err := n.kubectl(part, "apply", "-f", "-"); err != nil {
			return "", err
		}
	}
	if _, err := n.helm(namespace, "--values", filepath.Join(n.repo, "deploy/helm/values/gpu-operator-dra.yaml")); err != nil {
		return "", err
	}
	var claims *resourceapi.ResourceClaimList
	if err := n.wait(30*time.Second, func() (err error) {
		claims, err = n.client.ResourceV1().ResourceClaims(namespace).List(n.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(claims.Items) != 2 || slices.ContainsFunc(claims.Items, func(c resourceapi.ResourceClaim) bool { return c.Status.Allocation == nil }) {
			return fmt.Errorf("%d claims, not all of them allocated", len(claims.Items))
		}
		return nil
	}); err != nil {
		return "", err
	}
	served, err := n.kubectl("", "api-versions")
	if err != nil {
		return "", err
	}
	var versions []string
	for line := range strings.Lines(served) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "resource.k8s.io/v1"); ok {
			versions = append(versions, "v1"+version)
		}
	}
	for _, version := range versions {
		for _, c := range claims.Items {
			raw, err := n.kubectl("", "get", "--raw", "/apis/resource.k8s.io/"+version+"/namespaces/"+namespace+"/resourceclaims/"+c.Name)
			if err != nil {
				return "", err
			}
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
			raw = raw[max(0, strings.Index(raw, "{")):] // kubectl warns of old versions
			if err := json.Unmarshal([]byte(raw), &claim); err != nil {
				return "", err
			}
			results := claim.Status.Allocation.Devices.Results
			if len(results) != 1 || results[0].Device != "gpu-0" || results[0].AdminAccess != (c.Name != "user") {
				return "", fmt.Errorf("%s: claim %s has %+v", version, c.Name, results)
			}
			if c.Name != "user" {
				text += fmt.Sprintf("%s: %+v\n", version, results[0])
			}
		}
	}
	return strings.TrimSpace(text), nil
}
