package exporter

import (
	"errors"

	"go.uber.org/zap"

	"warpgauge/pkg/kube"
	"warpgauge/pkg/lists"
)

// annotations writes the list in service into the exporter's own pod.
func annotations(a *Program, desk *lists.Desk, log *zap.Logger) (Stage, error) {
	name, _ := a.Lookup("POD_NAME")
	namespace, _ := a.Lookup("POD_NAMESPACE")
	if name == "" || namespace == "" {
		return Stage{}, errors.New("--kubernetes-annotate-pod: set POD_NAME and POD_NAMESPACE from the downward API (fieldRef metadata.name, metadata.namespace)")
	}
	kube.RouteKlog(log)
	w := kube.NewAnnotations(kube.PodName{Namespace: namespace, Name: name}, desk.Annotations, "warpgauge/"+a.Build.Version, log)
	return Stage{Name: "annotations of the pod", Run: w.Run, Grace: ShortGrace}, nil
}
