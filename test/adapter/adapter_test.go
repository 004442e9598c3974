package adapter

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
	"sigs.k8s.io/prometheus-adapter/pkg/client"
	"sigs.k8s.io/prometheus-adapter/pkg/config"
	custom "sigs.k8s.io/prometheus-adapter/pkg/custom-provider"
	external "sigs.k8s.io/prometheus-adapter/pkg/external-provider"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
)

const rulesFile, exportedFile = "../../deploy/prometheus-adapter/rules.yml", "../../deploy/prometheus-adapter/rules-exported.yml"

// pods returns the pods that have the node's GPUs.
func pods(gpus [8]string) []*v1.PodResources {
	return []*v1.PodResources{
		pod("ml", "inference-a", gpus[0]), pod("ml", "inference-b", gpus[1], gpus[2]), pod("web", "chat-0", gpus[3]),
	}
}

// adapter is Prometheus Adapter without its API server.
type adapter struct {
	custom   provider.CustomMetricsProvider
	external provider.ExternalMetricsProvider
}

// newAdapter does what the adapter's main function does, with the test's own pods.
func newAdapter(t *testing.T, rules, prometheus string) *adapter {
	t.Helper()
	c, err := config.FromFile(rules)
	must(t, err)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	scheme := runtime.NewScheme()
	must(t, corev1.AddToScheme(scheme))
	var objects []runtime.Object
	for _, p := range append(pods([8]string{}), pod("monitoring", "warpgauge-x7k2p"), pod("ml", "inference-cpu")) {
		app, _, _ := strings.Cut(p.Name, "-")
		objects = append(objects, &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: map[string]string{"app": app}},
		})
	}
	at, err := url.Parse(prometheus)
	must(t, err)
	asks := client.NewClient(&http.Client{Timeout: 10 * time.Second}, at, nil, http.MethodGet)
	rule := func(r []config.DiscoveryRule) []naming.MetricNamer {
		namers, err := naming.NamersFromConfig(r, mapper)
		must(t, err)
		return namers
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	a := &adapter{}
	var look, lookToo interface{ RunUntil(<-chan struct{}) }
	a.custom, look = custom.NewPrometheusProvider(mapper, fake.NewSimpleDynamicClient(scheme, objects...), asks, rule(c.Rules), time.Second, time.Minute)
	a.external, lookToo = external.NewExternalPrometheusProvider(asks, rule(c.ExternalRules), time.Second, time.Minute)
	look.RunUntil(stop)
	lookToo.RunUntil(stop)
	return a
}

// ofPods returns the values of a Pods metric by pod, in thousandths.
func (a *adapter) ofPods(t *testing.T, namespace, app, metric string) (map[string]int64, error) {
	t.Helper()
	all, err := a.custom.GetMetricBySelector(t.Context(), namespace, labels.SelectorFromSet(labels.Set{"app": app}),
		provider.CustomMetricInfo{GroupResource: schema.GroupResource{Resource: "pods"}, Metric: metric, Namespaced: true}, labels.Everything())
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, v := range all.Items {
		out[v.DescribedObject.Name] = v.Value.MilliValue()
	}
	return out, nil
}

// ofObject returns the value of an Object metric in thousandths.
func (a *adapter) ofObject(t *testing.T, resource, namespace, name, metric string) (int64, error) {
	t.Helper()
	info := provider.CustomMetricInfo{GroupResource: schema.GroupResource{Resource: resource}, Metric: metric, Namespaced: namespace != ""}
	v, err := a.custom.GetMetricByName(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, info, labels.Everything())
	if err != nil {
		return 0, err
	}
	return v.Value.MilliValue(), nil
}

// ofCluster returns the only value of an External metric in thousandths.
func (a *adapter) ofCluster(t *testing.T, namespace, metric string, selector labels.Selector) (int64, error) {
	t.Helper()
	all, err := a.external.GetExternalMetric(t.Context(), namespace, selector, provider.ExternalMetricInfo{Metric: metric})
	if err != nil {
		return 0, err
	}
	if len(all.Items) != 1 {
		return 0, fmt.Errorf("%d values: %v", len(all.Items), all.Items)
	}
	return all.Items[0].Value.MilliValue(), nil
}

// near tolerates the last digits, which the adapter truncates.
func near(got, want int64) bool { return math.Abs(float64(got-want)) <= 2 }

func TestAdapter(t *testing.T) {
	program(t, "prometheus")
	exe := build(t)
	exporter := startExporter(t, exe, "as-written")
	for _, tt := range []struct {
		name          string
		rules         string
		exporter      string
		honor, native bool
	}{
		{"HonorLabels", rulesFile, exporter, true, false},
		{"ExportedLabels", exportedFile, exporter, false, false},
		{"NativeHistograms", rulesFile, startExporter(t, exe, "both"), true, true},
		{"NewNames", exportedFile, startExporter(t, exe, "new"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			prometheus := startPrometheus(t, tt.exporter, tt.honor, tt.native)
			a := newAdapter(t, tt.rules, prometheus)
			testPods(t, a)
			testObjects(t, a)
			testExternal(t, a, tt.native)
			testWithoutOwner(t, a)
			if tt.name == "HonorLabels" {
				testHPAs(t, a)
				testKEDA(t, prometheus)
			}
		})
	}
}

func testPods(t *testing.T, a *adapter) {
	t.Helper()
	const mebibyte = 1 << 20
	for metric, want := range map[string]map[string]int64{
		"gpu_utilization":       {"inference-a": 77_000, "inference-b": 50_000},
		"gpu_engine_active":     {"inference-a": 600, "inference-b": 550},
		"gpu_tensor_active":     {"inference-a": 310, "inference-b": 300},
		"gpu_memory_used_bytes": {"inference-a": 20480 * mebibyte * 1000, "inference-b": 81920 * mebibyte * 1000},
		"gpu_memory_used_ratio": {"inference-a": 250, "inference-b": 500},
		"gpu_utilization_mean":  {"inference-a": 770, "inference-b": 500},
		"gpu_saturation":        {"inference-a": 0, "inference-b": 500},
	} {
		eventually(t, metric, func() error {
			got, err := a.ofPods(t, "ml", "inference", metric)
			if err == nil && !maps.EqualFunc(got, want, near) {
				err = fmt.Errorf("%s is %v, want %v", metric, got, want)
			}
			return err
		})
	}
}

func testObjects(t *testing.T, a *adapter) {
	t.Helper()
	f := func(resource, namespace, name, metric string, want int64) {
		t.Helper()
		eventually(t, resource+"/"+metric, func() error {
			got, err := a.ofObject(t, resource, namespace, name, metric)
			if err == nil && !near(got, want) {
				err = fmt.Errorf("%s of %s/%s is %d, want %d", metric, resource, name, got, want)
			}
			return err
		})
	}
	f("namespaces", "", "ml", "gpu_utilization", 59_000)
	f("namespaces", "", "web", "gpu_utilization", 95_000)
	f("namespaces", "", "ml", "gpu_saturation", 333)
	f("namespaces", "", "web", "gpu_saturation", 1000)
	f("services", "ml", "inference", "gpu_utilization", 59_000)
	f("services", "web", "chat", "gpu_utilization_mean", 950)
	f("pods", "web", "chat-0", "gpu_utilization", 95_000)
}

func testExternal(t *testing.T, a *adapter, native bool) {
	t.Helper()
	f := func(namespace, metric string, selector labels.Set, low, high int64) {
		t.Helper()
		eventually(t, "external "+metric, func() error {
			got, err := a.ofCluster(t, namespace, metric, labels.SelectorFromSet(selector))
			if err == nil && (got < low || got > high) {
				err = fmt.Errorf("%s is %d, want %d to %d", metric, got, low, high)
			}
			return err
		})
	}
	f("ml", "gpu_saturation", nil, 331, 335)
	f("ml", "gpu_saturation", labels.Set{"gpu": "0"}, 0, 0)
	f("web", "gpu_saturation", nil, 998, 1000)
	f("any", "gpu_cluster_utilization", nil, 389, 391) // (77+95+5+95+4·10)/8 %
	f("any", "gpu_cluster_utilization", labels.Set{"gpu": "3"}, 949, 951)
	f("any", "gpus_free", nil, 3999, 4001)
	if !native { // the recording rule uses classic buckets
		f("any", "gpu_cluster_utilization_p99", nil, 900, 950)
	}
}

// testWithoutOwner: a pod without a GPU has no value rather than 0, and GPUs without an owner are not attributed to the
// exporter.
func testWithoutOwner(t *testing.T, a *adapter) {
	t.Helper()
	for _, name := range []string{"monitoring/warpgauge-x7k2p", "ml/inference-cpu"} {
		namespace, pod, _ := strings.Cut(name, "/")
		for _, metric := range []string{"gpu_utilization", "gpu_saturation", "gpu_memory_used_bytes"} {
			if got, err := a.ofObject(t, "pods", namespace, pod, metric); err == nil {
				t.Errorf("%s of %s is %d, want none", metric, name, got)
			}
		}
	}
	if got, err := a.ofObject(t, "namespaces", "", "monitoring", "gpu_utilization"); err == nil {
		t.Errorf("namespace monitoring has utilisation %d, want none", got)
	}
}
