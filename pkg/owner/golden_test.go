package owner

import (
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/view"

	"warpgauge/pkg/kube"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"warpgauge/pkg/exposition"
)

// shared assigns devices in every way: GPU 0 to two pods and a sidecar, GPU 1 to one pod by a claim, instances of GPU 2
// to one pod, to two, and to a job.
func shared(t *testing.T, change ...func(*Options)) *rig {
	r := newRig(all(append(change, func(o *Options) { o.PodLabels = true })...), machine()...)
	r.board.Store(&view.View{Version: 2, Sources: []*view.Source{measured(t, machine()[:8]...)}})
	r.know("ml/train-0 uid-t team=vision", "ml/infer-0 uid-i app.kubernetes.io/name=\"chat\"", "ml/infer-1 uid-j team=chat").
		describe("gpu.nvidia.com", "gpu-1", kube.SliceDevice{Kind: kube.WholeGPU, UUID: uuid(1)}).
		give(
			"ml/train-0/main: nvidia.com/gpu.shared "+uuid(0)+"::0", "ml/train-0/side: nvidia.com/gpu.shared "+uuid(0)+"::1", "ml/infer-0/main: nvidia.com/gpu.shared "+uuid(0)+"::2",
			"ml/infer-1/main: claim=big gpu.nvidia.com node-1 gpu-1",
			"ml/infer-1/aux: nvidia.com/mig-1g.10gb "+mig(0),
			"ml/infer-0/aux: nvidia.com/mig-2g.20gb.shared "+mig(1)+"::0", "ml/infer-1/aux2: nvidia.com/mig-2g.20gb.shared "+mig(1)+"::1",
		).
		schedule(map[string][]string{"2.3": {"4711", "4712"}}).
		use(uuid(0), true, proc("uid-t", 55, 700*mib), proc("uid-i", 20.5, 100*mib), proc("", 1, 50*mib)).
		use(uuid(2)+"/1", true, proc("uid-j", nan, 300*mib))
	return r
}

// TestGolden compares the page of one machine in each mode.
func TestGolden(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"plain.prom":               withoutProcesses,
		"plain-processes.prom":     func(*Options) {},
		"virtual.prom":             virtual,
		"virtual-copies.prom":      all(virtual, withoutProcesses),
		"virtual-uid-old.prom":     all(virtual, func(o *Options) { o.PodUID, o.OldNamespace = true, true }),
		"virtual-no-metadata.prom": all(virtual, func(o *Options) { o.Metadata = nil }),
	} {
		r := shared(t, change)
		text := string(exposition.New(r.board, exposition.Options{Owners: r.Keeper}).Page(exposition.Text, false))
		golden.Check(t, filepath.Join("testdata", name), text)
		parser := expfmt.NewTextParser(model.LegacyValidation)
		_, err := parser.TextToMetricFamilies(strings.NewReader(text))
		testkit.ErrorIf(t, err != nil, "%s: %v", name, err)
	}
}
