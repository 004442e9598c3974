package main

import (
	"strings"
	"testing"

	"warpgauge/pkg/exporter"

	"go.uber.org/zap"
)

func TestAnnotationsNeedThePodsName(t *testing.T) {
	if _, err := exporter.AnnotationStage(&exporter.Program{Environ: []string{"POD_NAME=exporter-x"}}, nil, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "POD_NAMESPACE") {
		t.Errorf("without the pod's name: %v", err)
	}
}
