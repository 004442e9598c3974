package main

import (
	"errors"

	"go.uber.org/zap"

	"warpgauge/pkg/kube"
	"warpgauge/pkg/lists"
)

// annotationStage writes which list is in service into the exporter's own pod.
func annotationStage(a *app, desk *lists.Desk, log *zap.Logger) (stage, error) {
	name, _ := a.lookup("POD_NAME")
	namespace, _ := a.lookup("POD_NAMESPACE")
	if name == "" || namespace == "" {
		return stage{}, errors.New("--kubernetes-annotate-pod: set POD_NAME and POD_NAMESPACE from the downward API (fieldRef metadata.name, metadata.namespace)")
	}
	kube.RouteKlog(log)
	w := kube.NewAnnotations(kube.AnnotationOptions{
		Pod: kube.PodName{Namespace: namespace, Name: name}, Want: desk.Annotations, UserAgent: "warpgauge/" + a.build.Version, Log: log,
	})
	return stage{name: "annotations of the pod", run: w.Run, grace: shortGrace}, nil
}
