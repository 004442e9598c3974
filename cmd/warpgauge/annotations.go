package main

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/remote"
	"warpgauge/pkg/kube"
)

// annotationStage writes which list is in service into the exporter's own pod.
func annotationStage(a *app, r *reloader, log *zap.Logger) (stage, error) {
	name, _ := a.lookup("POD_NAME")
	namespace, _ := a.lookup("POD_NAMESPACE")
	if name == "" || namespace == "" {
		return stage{}, errors.New("--kubernetes-annotate-pod: set POD_NAME and POD_NAMESPACE from the downward API (fieldRef metadata.name, metadata.namespace)")
	}
	kube.RouteKlog(log)
	w := kube.NewAnnotations(kube.AnnotationOptions{
		Pod: kube.PodName{Namespace: namespace, Name: name}, Want: r.annotations, UserAgent: "warpgauge/" + a.build.Version, Log: log,
	})
	return stage{name: "annotations of the pod", run: w.Run, grace: shortGrace}, nil
}

// annotations say which list is in service, and what was wrong with a later one.
func (r *reloader) annotations() map[string]string {
	now := r.service.Load()
	problem := now.LastError
	if r.remote != nil {
		if d := r.remote(); d.Status == remote.StateRefused || d.Status == remote.StateFailed {
			problem = d.Text
		}
	}
	return map[string]string{
		"warpgauge/list-hash":    now.Hash,
		"warpgauge/list-origin":  now.Source,
		"warpgauge/list-applied": now.Applied.Format(time.RFC3339),
		"warpgauge/list-error":   problem,
	}
}
