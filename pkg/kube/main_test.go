package kube

import (
	"testing"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
