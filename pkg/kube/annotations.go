package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// annotationInterval is how often annotations are compared. Each pod has its own phase, which spreads a change on
	// all nodes over the interval.
	annotationInterval = 30 * time.Second
	annotationRetry    = 10 * time.Minute // the longest wait after failures
)

// Annotations keeps annotations of one pod up to date. It reads nothing: it patches the pod when the wanted annotations
// change. It needs the right to patch pods in the pod's namespace.
type Annotations struct {
	pod  PodName
	want func() map[string]string
	log  *zap.Logger
	api  *APIServer
}

// NewAnnotations returns Annotations, which do nothing before Run. Run calls want; an empty value removes the annotation.
func NewAnnotations(pod PodName, want func() map[string]string, userAgent string, log *zap.Logger) *Annotations {
	return &Annotations{pod: pod, want: want, log: log.Named("annotations"), api: NewAPIServer(APIOptions{UserAgent: userAgent, Log: log})}
}

// Run writes until ctx ends, and returns nil. It may be called once.
func (a *Annotations) Run(ctx context.Context) error {
	var written map[string]string
	failing, wait := "", annotationInterval
	timer := time.NewTimer(rand.N(annotationInterval)) //nolint:gosec // spreads load
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if want := a.want(); !maps.Equal(want, written) {
			err := a.patch(ctx, want)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				if reason := reasonOf(err); reason != failing {
					a.log.Warn("cannot write the pod's annotations", zap.Error(err))
					failing = reason
				}
				wait = min(2*wait, annotationRetry)
			default:
				a.log.Debug("wrote the pod's annotations")
				written, failing, wait = want, "", annotationInterval
			}
		}
		timer.Reset(wait)
	}
}

// patch sets the annotations in one request.
func (a *Annotations) patch(ctx context.Context, want map[string]string) error {
	values := map[string]*string{} // nil removes an annotation
	for name, value := range want {
		values[name] = nil
		if value = clip(value); value != "" {
			values[name] = &value
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": values}})
	if err != nil {
		return err
	}
	pod := a.pod
	c, err := a.api.dial()
	if err != nil {
		return fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	_, err = c.pods.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(pod.Namespace).
		Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("annotate pod %s/%s: grant the verb patch on pods to this service account by a Role in namespace %q: %w", pod.Namespace, pod.Name, pod.Namespace, err)
	case err != nil:
		return fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
