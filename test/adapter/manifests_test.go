package adapter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// documents returns the documents of YAML files.
func documents(t *testing.T, pattern string) (out [][]byte) {
	t.Helper()
	files, err := filepath.Glob("../../deploy/prometheus-adapter/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		out = append(out, bytes.Split(text, []byte("\n---\n"))...)
	}
	return out
}

// testHPAs queries every metric of every example as the HPA controller does.
func testHPAs(t *testing.T, a *adapter) {
	t.Helper()
	kinds := map[autoscaling.MetricSourceType]int{}
	for _, text := range documents(t, "hpa/*.yml") {
		var h autoscaling.HorizontalPodAutoscaler
		if err := yaml.UnmarshalStrict(text, &h); err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		if h.APIVersion != "autoscaling/v2" || h.Kind != "HorizontalPodAutoscaler" || h.Spec.MaxReplicas == 0 || len(h.Spec.Metrics) == 0 {
			t.Errorf("%s is no complete HPA:\n%s", h.Name, text)
		}
		for _, m := range h.Spec.Metrics {
			kinds[m.Type]++
			eventually(t, fmt.Sprintf("%s of %s", m.Type, h.Name), func() error { return a.has(t, &h, m) })
		}
	}
	if len(kinds) != 3 {
		t.Errorf("examples are of %v, want Pods, Object and External", kinds)
	}
}

func (a *adapter) has(t *testing.T, h *autoscaling.HorizontalPodAutoscaler, m autoscaling.MetricSpec) error {
	t.Helper()
	switch m.Type {
	case autoscaling.PodsMetricSourceType:
		if m.Pods.Target.Type != autoscaling.AverageValueMetricType || m.Pods.Target.AverageValue == nil {
			return fmt.Errorf("Pods metrics have an average: %+v", m.Pods.Target)
		}
		got, err := a.ofPods(t, h.Namespace, h.Spec.ScaleTargetRef.Name, m.Pods.Metric.Name)
		if err == nil && len(got) != 2 {
			err = fmt.Errorf("%s is %v, want 2 pods", m.Pods.Metric.Name, got)
		}
		return err
	case autoscaling.ObjectMetricSourceType:
		o := m.Object
		resource, namespace := strings.ToLower(o.DescribedObject.Kind)+"s", h.Namespace
		if resource == "namespaces" {
			namespace = ""
		}
		_, err := a.ofObject(t, resource, namespace, o.DescribedObject.Name, o.Metric.Name)
		return err
	case autoscaling.ExternalMetricSourceType:
		selector := labels.Everything()
		if s := m.External.Metric.Selector; s != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(s); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
		}
		_, err := a.ofCluster(t, h.Namespace, m.External.Metric.Name, selector)
		return err
	}
	return fmt.Errorf("unexpected type %q", m.Type)
}

// testKEDA runs the queries of the triggers.
func testKEDA(t *testing.T, prometheus string) {
	t.Helper()
	want := []float64{59, 100.0 / 3}
	for _, text := range documents(t, "keda/*.yml") {
		var o struct {
			Kind string
			Spec struct {
				Triggers []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		must(t, yaml.Unmarshal(text, &o))
		if o.Kind != "ScaledObject" || len(o.Spec.Triggers) != len(want) {
			t.Fatalf("%s with %d triggers, want ScaledObject with %d", o.Kind, len(o.Spec.Triggers), len(want))
		}
		for i, trigger := range o.Spec.Triggers {
			if _, err := strconv.ParseFloat(trigger.Metadata["threshold"], 64); err != nil || trigger.Type != "prometheus" {
				t.Errorf("trigger %d is of type %q with threshold %q", i, trigger.Type, trigger.Metadata["threshold"])
			}
			eventually(t, "the answer to a trigger", func() error {
				got, err := query(t, prometheus, trigger.Metadata["query"])
				if err == nil && math.Abs(got-want[i]) > 0.1 {
					err = fmt.Errorf("%s is %v, want %v", trigger.Metadata["query"], got, want[i])
				}
				return err
			})
		}
	}
}

// query returns the only result of an instant query.
func query(t *testing.T, prometheus, expr string) (float64, error) {
	t.Helper()
	response, err := (&http.Client{Timeout: 10 * time.Second}).Get(prometheus + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var reply struct {
		Error string
		Data  struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return 0, err
	}
	if len(reply.Data.Result) != 1 {
		return 0, fmt.Errorf("%s: %d results %s", expr, len(reply.Data.Result), reply.Error)
	}
	return strconv.ParseFloat(fmt.Sprint(reply.Data.Result[0].Value[1]), 64)
}
