package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	monitoring  = "monitoring" // namespace of the chart
	workloads   = "ml"         // that of the pods with GPUs, as in deploy/prometheus-adapter/hpa
	utilization = "DCGM_FI_DEV_GPU_UTIL"

	gpu       = "nvidia.com/gpu"
	sharedGPU = "nvidia.com/gpu.shared"
)

// What each simulated GPU is offered as: 0 to 5 whole, 6 in two time slices, 7 by DRA.
const (
	wholeGPUs = 6
	sliced    = 6
	dra       = 7
)

//go:embed manifests
var manifests embed.FS

// apply creates what a file of manifests says.
func (n *node) apply(name string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return err
	}
	_, err = n.kubectl(string(text), "apply", "--validate=strict", "-f", "-")
	return err
}

// checks are in the order in which they need each other.
func (n *node) checks() {
	c := n.report.check
	if !c("control plane: etcd, API server, controller manager, scheduler", n.startControlPlane) {
		return
	}
	c("every variant of the chart passes the API server's dry run, with the Prometheus operator's CRDs", n.dryRun)
	if !c("containerd and runc start a container", n.startContainerd) || !c("the kubelet makes a node", n.startNode) ||
		!c("device plugin: "+gpu+" and time slices", n.startPlugins) {
		return
	}
	c("pods that ask for GPUs run", n.startWorkloads)
	if !c("the chart's DaemonSet is ready, without leave to read pods", n.installWithoutLeave) {
		return
	}
	c("namespace, pod and container, as the kubelet tells", n.owners)
	c("without RBAC: a message, and everything else stays", n.message)
	c("with the chart's RBAC: labels and uid of pods", n.installWithLeave)
	c("time-sliced GPU: a series for each container", n.slices)
	c("dynamic resource allocation: the device's pod", n.dynamic)
	if c("Prometheus and Prometheus Adapter", n.startMonitoring) {
		c("load rises: the HPA scales up", n.scaleUp)
		c("External and Object metrics", n.otherMetrics)
		c("load falls: the HPA scales down", n.scaleDown)
	}
	c("the kubelet restarts while the page is scraped: labels stay", n.restartKubelet)
	c("the release is uninstalled and leaves nothing", n.uninstall)
}

// dryRun lets the chart's own test ask, which knows all the variants.
func (n *node) dryRun() (string, error) {
	if n.crds == "" {
		return "", skip("no folder of CRDs was given")
	}
	if _, err := n.kubectl("", "apply", "--server-side", "-f", n.crds); err != nil {
		return "", err
	}
	if err := n.wait(30*time.Second, func() error {
		_, err := n.kubectl("", "get", "servicemonitors,podmonitors,prometheusrules", "-A")
		return err
	}); err != nil {
		return "", err
	}
	out, err := n.command("", filepath.Join(n.repo, "deploy/helm"), n.tools.chartTest, "-test.v", "-test.run", "^TestServer$")
	if err != nil {
		return "", err
	}
	if !strings.Contains(out, "--- PASS: TestServer") {
		return "", fmt.Errorf("the test did not run: %s", out)
	}
	variants, err := filepath.Glob(filepath.Join(n.repo, "deploy/helm/values/*.yaml"))
	return fmt.Sprintf("the defaults and %d files of values, without openshift.yaml, whose kinds are OpenShift's", len(variants)-1), err
}

func (n *node) startPlugins() (string, error) {
	out, err := n.command("", n.dir, filepath.Join(n.repo, "bin/warpgauge"),
		append([]string{"devices"}, simulation()...)...)
	if err != nil {
		return "", err
	}
	if n.uuids = uuidsOf(out); len(n.uuids) < dra+1 {
		return "", fmt.Errorf("the exporter simulates %d GPUs: %s", len(n.uuids), out)
	}
	n.plugins = []*devicePlugin{
		{resource: gpu, ids: n.uuids[:wholeGPUs]},
		{resource: sharedGPU, ids: []string{n.uuids[sliced] + "::0", n.uuids[sliced] + "::1"}},
	}
	return "", n.registerPlugins()
}

// registerPlugins waits until the node offers everything. The kubelet refuses a
// registration while it starts.
func (n *node) registerPlugins() error {
	for _, p := range n.plugins {
		if err := n.wait(30*time.Second, func() error { return p.start(n.ctx) }); err != nil {
			return err
		}
		if err := n.wait(30*time.Second, func() error {
			if have, err := n.allocatable(p.resource); err != nil || have != int64(len(p.ids)) {
				return fmt.Errorf("the node offers %d of %s (%v)", have, p.resource, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func simulation() []string {
	return []string{"--enable-fake", "--enable-nvml=false", "--enable-dcgm=false", "--enable-rocm=false"}
}

// uuidsOf finds the UUIDs of whole GPUs in the order of their indexes.
func uuidsOf(text string) (out []string) {
	for _, word := range strings.Fields(text) {
		if word = strings.Trim(word, `",`); strings.HasPrefix(word, "GPU-") && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

func (n *node) startWorkloads() (string, error) {
	if err := n.apply("workloads.yaml"); err != nil {
		return "", err
	}
	pods, err := n.running(workloads, "", 3)
	return strings.Join(names(pods), "\n"), err
}

// running waits for so many pods that run.
func (n *node) running(namespace, selector string, want int) (pods []corev1.Pod, err error) {
	err = n.wait(60*time.Second, func() error {
		list, err := n.client.CoreV1().Pods(namespace).List(n.ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(pods) != want || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !ready(&p) }) {
			return fmt.Errorf("%d pods in %s, want %d that are ready%s", len(pods), namespace, want, states(pods))
		}
		return nil
	})
	return pods, err
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func names(pods []corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

// states says what pods wait for.
func states(pods []corev1.Pod) string {
	var out strings.Builder
	for _, p := range pods {
		fmt.Fprintf(&out, "; %s %s %s", p.Name, p.Status.Phase, p.Status.Message)
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				fmt.Fprintf(&out, ", %s", c.Message)
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil {
				fmt.Fprintf(&out, ", %s: %s", c.Name, c.State.Waiting.Message)
			}
		}
	}
	return out.String()
}

// installWithoutLeave installs the chart with features for which the API server must
// allow something, and without the objects that allow it.
func (n *node) installWithoutLeave() (string, error) {
	spec := "faults:\n"
	for file, percent := range map[string]int{"busy": 97, "idle": 5} {
		spec += fmt.Sprintf("  - {device: 0-%d, kind: value, field: %s, value: %d, while: /fake/%s}\n", dra, utilization, percent, file)
	}
	if err := errors.Join(os.WriteFile(n.path("fake/spec.yaml"), []byte(spec), 0o644), n.load("idle")); err != nil {
		return "", err
	}
	values, err := manifests.ReadFile("manifests/values.yaml")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(n.path("values.yaml"), fmt.Appendf(nil, string(values), imageTag, sharedGPU, n.path("fake")), 0o644); err != nil {
		return "", err
	}
	if err := n.install("kubernetes.rbac.create=false"); err != nil {
		return "", err
	}
	address, err := n.exporterAddress()
	return "at " + address, err
}

// install runs Helm. Of a DaemonSet of one pod Helm waits for none: the chart lets a part
// of the pods be unavailable, rounded up.
func (n *node) install(set string) error {
	_, err := n.command("", n.dir, n.tools.helm, "upgrade", "--install", "warpgauge", filepath.Join(n.repo, "deploy/helm/warpgauge"),
		"--namespace", monitoring, "--create-namespace", "--values", n.path("values.yaml"), "--set", set, "--wait", "--timeout", "90s")
	if err != nil {
		logs, _ := n.exporterLog()
		return fmt.Errorf("%w\n%s", err, logs)
	}
	return n.wait(60*time.Second, func() error {
		_, err := n.exporterAddress()
		return err
	})
}

func (n *node) exporterLog() (string, error) {
	return n.kubectl("", "--namespace", monitoring, "logs", "--selector", "app.kubernetes.io/component=nvidia", "--tail", "-1")
}

// load makes all simulated GPUs busy or idle, of which one is always said.
func (n *node) load(what string) error {
	for _, f := range []string{"busy", "idle"} {
		if f != what {
			if err := os.Remove(n.path("fake/" + f)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return os.WriteFile(n.path("fake/"+what), nil, 0o644)
}

// owners compares the page with what the API server says of the pods.
func (n *node) owners() (string, error) {
	pods, err := n.running(workloads, "gpu=whole", 1)
	if err != nil {
		return "", err
	}
	p := pods[0]
	var text string
	err = n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		found := page.uuids(p.Namespace, p.Name)
		if len(found) != 1 {
			return fmt.Errorf("%s/%s has the devices %q on the page", p.Namespace, p.Name, found)
		}
		series := page.of(utilization, found[0])
		if len(series) != 1 || series[0]["container"] != p.Spec.Containers[0].Name {
			return fmt.Errorf("series of %s: %v", found[0], series)
		}
		if len(page.devices(false)) == len(page.devices(true)) {
			return errors.New("every GPU has a pod")
		}
		text = describe(series[0])
		return nil
	})
	return text, err
}

// describe writes the labels that say who has a device.
func describe(labels map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch name {
		case "device", "modelName", "hostname", "pci_bus_id", "DCGM_FI_DRIVER_VERSION":
		default:
			out = append(out, name+"="+labels[name])
		}
	}
	return strings.Join(out, " ")
}

func (n *node) message() (string, error) {
	page, err := n.scrape()
	if err != nil {
		return "", err
	}
	for _, labels := range page[utilization] {
		if labels["pod_uid"] != "" || labels["team"] != "" {
			return "", fmt.Errorf("labels of a pod without leave to read it: %s", describe(labels))
		}
	}
	var text string
	err = n.wait(60*time.Second, func() error {
		logs, err := n.exporterLog()
		if err != nil {
			return err
		}
		lines := strings.Split(logs, "\n")
		text = ""
		for _, what := range []string{"pods", "resourceslices"} {
			i := slices.IndexFunc(lines, func(l string) bool {
				return strings.Contains(l, "forbidden") && strings.Contains(l, "list "+what+": ")
			})
			if i < 0 {
				return fmt.Errorf("no message about %s in the log: %s", what, logs)
			}
			text += lines[i] + "\n"
		}
		return nil
	})
	return text, err
}

// installWithLeave adds the chart's RBAC objects, which the running pod notices.
func (n *node) installWithLeave() (string, error) {
	if err := n.install("kubernetes.rbac.create=true"); err != nil {
		return "", err
	}
	pods, err := n.running(workloads, "gpu=whole", 1)
	if err != nil {
		return "", err
	}
	var text string
	err = n.wait(90*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		for _, uuid := range page.uuids(workloads, pods[0].Name) {
			series := page.of(utilization, uuid)[0]
			text = describe(series)
			if series["pod_uid"] == string(pods[0].UID) && series["team"] == "vision" && series["app_kubernetes_io_name"] == "inference" {
				return nil
			}
		}
		return fmt.Errorf("labels are %s", text)
	})
	return text, err
}

func (n *node) slices() (string, error) {
	var text []string
	err := n.wait(30*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		text = nil
		var who []string
		for _, labels := range page.of(utilization, n.uuids[sliced]) {
			text = append(text, describe(labels))
			who = append(who, labels["pod"]+" "+labels["vgpu"])
		}
		slices.Sort(who)
		if len(who) != 2 || !strings.HasPrefix(who[0], "shared-a ") || !strings.HasPrefix(who[1], "shared-b ") ||
			strings.TrimPrefix(who[0], "shared-a ") == strings.TrimPrefix(who[1], "shared-b ") {
			return fmt.Errorf("series: %q", text)
		}
		return nil
	})
	return strings.Join(text, "\n"), err
}

func (n *node) dynamic() (string, error) {
	if err := n.startDRA(map[string]string{fmt.Sprintf("gpu-%d", dra): n.uuids[dra]}); err != nil {
		return "", err
	}
	if err := n.apply("dra.yaml"); err != nil {
		return "", err
	}
	if _, err := n.running(workloads, "gpu=dra", 1); err != nil {
		return "", err
	}
	var text string
	err := n.wait(60*time.Second, func() error {
		page, err := n.scrape()
		if err != nil {
			return err
		}
		series := page.of(utilization, n.uuids[dra])
		if len(series) != 1 || series[0]["pod"] != "claimed" || series[0]["namespace"] != workloads {
			return fmt.Errorf("series: %v", series)
		}
		text = describe(series[0])
		return nil
	})
	return text, err
}

// restartKubelet scrapes without a pause from before the kubelet ends until the page has a
// pod that was made after it came back.
func (n *node) restartKubelet() (string, error) {
	address, err := n.exporterAddress()
	if err != nil {
		return "", err
	}
	want, err := n.settled()
	if err != nil {
		return "", err
	}
	ctx, stop := context.WithCancel(n.ctx)
	defer stop()
	scrapes, failed := 0, make(chan error, 1)
	go func() {
		defer close(failed)
		for ; ctx.Err() == nil; scrapes++ {
			p, err := scrape(address)
			if err == nil {
				err = p.has(want)
			}
			if err != nil {
				failed <- fmt.Errorf("scrape %d: %w", scrapes, err)
				return
			}
		}
	}()
	n.kubelet.stop()
	for _, p := range n.plugins {
		p.close()
	}
	time.Sleep(kubeletAway)
	begin := time.Now()
	err = errors.Join(n.startKubelet(), n.registerPlugins(), n.wait(60*time.Second, func() error { return n.leaseSince(begin) }), n.nodeReady())
	back := since(begin)
	if err == nil {
		err = n.apply("fresh.yaml")
	}
	if err == nil {
		_, err = n.running(workloads, "gpu=fresh", 1)
	}
	begin = time.Now()
	if err == nil {
		err = n.wait(60*time.Second, func() error {
			if page, err := n.scrape(); err != nil || page.uuids(workloads, "fresh") == nil {
				return fmt.Errorf("a pod made after the restart is not on the page (%v)", err)
			}
			return nil
		})
	}
	fresh := since(begin)
	stop()
	err = errors.Join(err, <-failed)
	return fmt.Sprintf("%d scrapes with all %d pods; the kubelet was away for %v and took %s to come back; a new pod was on the page %s after it ran",
		scrapes, len(want), kubeletAway, back, fresh), err
}

// settled waits until the page has the pods that run, and no others, and returns them
// with their devices.
func (n *node) settled() (out []string, err error) {
	err = n.wait(30*time.Second, func() error {
		list, err := n.client.CoreV1().Pods(workloads).List(n.ctx, metav1.ListOptions{LabelSelector: "gpu"})
		if err != nil {
			return err
		}
		pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		page, err := n.scrape()
		if err != nil {
			return err
		}
		if out = page.owners(); len(out) != len(pods) {
			return fmt.Errorf("%d pods have GPUs, on the page are %q", len(pods), out)
		}
		return nil
	})
	return out, err
}

// The kubelet is away for longer than the exporter's interval of asking it, 5 s.
const kubeletAway = 7 * time.Second

// leaseSince is content when the kubelet has told the API server that it lives.
func (n *node) leaseSince(t time.Time) error {
	lease, err := n.client.CoordinationV1().Leases("kube-node-lease").Get(n.ctx, nodeName, metav1.GetOptions{})
	if err == nil && lease.Spec.RenewTime.Time.Before(t) {
		err = errNotYet
	}
	return err
}

// uninstall looks for what Helm leaves behind.
func (n *node) uninstall() (string, error) {
	if _, err := n.command("", n.dir, n.tools.helm, "uninstall", "warpgauge", "--namespace", monitoring, "--wait", "--timeout", "60s"); err != nil {
		return "", err
	}
	return "", n.wait(30*time.Second, func() error {
		out, err := n.kubectl("", "get", "all,serviceaccounts,configmaps,secrets,clusterroles,clusterrolebindings", "-A",
			"-l", "app.kubernetes.io/instance=warpgauge", "-o", "name")
		if err == nil && strings.Contains(out, "/") {
			err = errors.New(out)
		}
		return err
	})
}
