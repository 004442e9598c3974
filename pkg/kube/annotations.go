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

	// Used by Run's goroutine only.
	written map[string]string
	failing string        // reason
	wait    time.Duration // before the next comparison
}

// NewAnnotations returns Annotations, which do nothing before Run. Run calls want; an empty value removes the annotation.
func NewAnnotations(pod PodName, want func() map[string]string, userAgent string, log *zap.Logger) *Annotations {
	api := NewAPIServer(APIOptions{UserAgent: userAgent, Log: log})
	return &Annotations{pod: pod, want: want, log: log.Named("annotations"), api: api, wait: annotationInterval}
}

// Run writes until ctx ends, and returns nil. It may be called once.
func (a *Annotations) Run(ctx context.Context) error {
	for wait := rand.N(annotationInterval); ; wait = a.wait { //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			a.compare(ctx)
		}
	}
}

// compare writes the wanted annotations if they are not written yet.
func (a *Annotations) compare(ctx context.Context) {
	want := a.want()
	if maps.Equal(want, a.written) {
		return
	}
	err := a.patch(ctx, want)
	switch {
	case ctx.Err() != nil: // Run is ending
	case err == nil:
		a.log.Debug("wrote the pod's annotations")
		a.written, a.failing, a.wait = want, "", annotationInterval
	default:
		if reason := reasonOf(err); reason != a.failing {
			a.log.Warn("cannot write the pod's annotations", zap.Error(err))
			a.failing = reason
		}
		a.wait = min(2*a.wait, annotationRetry)
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
	c, err := a.api.dial(qps, burst)
	if err != nil {
		return fmt.Errorf("annotate pod %s/%s: %w: %w", pod.Namespace, pod.Name, errNoConfig, err)
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err = c.Patch(types.MergePatchType).AbsPath("api/v1/namespaces", pod.Namespace, "pods", pod.Name).Body(body).Do(ctx).Error()
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("annotate pod %s/%s: grant the verb patch on pods to this service account by a Role in namespace %q: %w", pod.Namespace, pod.Name, pod.Namespace, err)
	case err != nil:
		return fmt.Errorf("annotate pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
