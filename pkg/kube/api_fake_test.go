package kube

import (
	"context"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"

	"warpgauge/pkg/kube/kubetest/apitest"
)

type (
	apiServer = apitest.Server
	object    = apitest.Object
)

// sliceObject is one of version v1; devices are attributes by name.
func sliceObject(name, driver, pool string, generation, count int, devices ...object) object {
	list := []any{}
	for _, d := range devices {
		list = append(list, d)
	}
	return object{"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", "metadata": object{"name": name},
		"spec": object{"driver": driver, "nodeName": "node-1", "devices": list,
			"pool": object{"name": pool, "generation": generation, "resourceSliceCount": count}}}
}

func gpuObject(name, uuid string) object {
	return object{"name": name, "attributes": object{"type": object{"string": "gpu"}, "uuid": object{"string": uuid}}}
}

// running is an APIServer that runs, and what it reported.
type running struct {
	*APIServer
	health *Health
	logs   *observer.ObservedLogs
	stop   context.CancelFunc
	ended  chan struct{}
}

// startAPI runs an APIServer for one of the lists.
func startAPI(t *testing.T, s *APIServer, logs *observer.ObservedLogs) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{APIServer: s, health: NewHealth("none", nil), logs: logs, stop: stop, ended: make(chan struct{})}
	if len(s.Health) > 0 {
		r.health = s.Health[0]
	}
	go func() {
		defer close(r.ended)
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	return r
}

// newAPI returns an APIServer with a log, for the config of a server.
func newAPI(o APIOptions, config func() (*rest.Config, error)) (*APIServer, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	o.Log = zap.New(core)
	s := NewAPIServer(o)
	s.config = config
	return s, logs
}

// said returns the messages since it was called last.
func (r *running) said() []string {
	var all []string
	for _, e := range r.logs.TakeAll() {
		all = append(all, e.Message)
	}
	return all
}

// lastError is the text of the last error that was logged.
func (r *running) lastError() string {
	text := ""
	for _, e := range r.logs.TakeAll() {
		if err, ok := e.ContextMap()["error"].(string); ok {
			text = err
		}
	}
	return text
}
