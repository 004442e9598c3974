package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ConfigMapKey is the key of the counters CSV in dcgm-exporter's ConfigMap.
const ConfigMapKey = "metrics"

// ReadConfigMap reads the counters CSV from a ConfigMap once, as dcgm-exporter does for -m. It needs the right to get
// that ConfigMap.
func ReadConfigMap(ctx context.Context, namespace, name, userAgent string) ([]byte, error) {
	return NewAPIServer(APIOptions{UserAgent: userAgent}).readConfigMap(ctx, namespace, name)
}

func (s *APIServer) readConfigMap(ctx context.Context, namespace, name string) (csv []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read ConfigMap %s:%s: %w", namespace, name, err)
		}
	}()
	c, err := s.dial(qps, burst)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var object apiObject
	err = read(ctx, c.Get().AbsPath("api/v1/namespaces", namespace, "configmaps", name), &object)
	text, found := object.Data[ConfigMapKey]
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("grant the verb get on it to this service account by a Role in namespace %q: %w", namespace, err)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is none: %w", err)
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("it has no key %q, under which the counters CSV is expected", ConfigMapKey)
	}
	return []byte(text), nil
}
