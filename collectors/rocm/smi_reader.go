package rocm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/raw"
)

// smiOptions say which library and what for.
type smiOptions struct {
	Library string     // file or soname; "" means the usual ones
	Sys     string     // the /sys directory; "" means "/sys". The library has its own idea of it
	GPUs    []raw.GPU  // what is there
	Shared  *Libraries // those of the process; nil means none of anybody else
	Log     *zap.Logger
}

// smiReader reads GPUs through librocm_smi64. What the library must not be asked
// or cannot tell is not had: the caller asks sysfs.
type smiReader struct {
	shared *smiShared
	sys    string
	closed sync.Once
	log    *zap.Logger
}

var (
	_ raw.Reader = (*smiReader)(nil)
	_ raw.Handle = (*smiHandle)(nil)
	_ raw.Meter  = (*smiHandle)(nil)
)

// openSMI loads and starts the library, or joins who has it started already. It
// returns when ctx ends, also if the library hangs.
// Errors: collector.ErrNotBuiltIn, collector.ErrNotLoaded, errSMIStarting, wrapped.
func openSMI(ctx context.Context, o smiOptions) (raw.Reader, error) {
	if o.Shared == nil {
		o.Shared = new(Libraries)
	}
	if o.Sys == "" {
		o.Sys = "/sys"
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	gpus := make([]string, 0, len(o.GPUs))
	for _, g := range o.GPUs {
		gpus = append(gpus, g.PCI)
	}
	s, err := o.Shared.open(ctx, o.Library, o.Sys, gpus)
	if err != nil {
		return nil, err
	}
	o.Log.Info("reading through ROCm SMI", zap.String("file", s.describe()))
	return &smiReader{shared: s, sys: o.Sys, log: o.Log}, nil
}

// closePatience is how long Close waits for rsmi_shut_down.
const closePatience = 2 * time.Second

// Close gives the library back. It waits for rsmi_shut_down, but not for one
// that hangs.
func (r *smiReader) Close() error {
	r.closed.Do(func() { r.shared.release(closePatience) })
	return nil
}

// Open prepares the readings of a GPU and calls no function of the library.
func (r *smiReader) Open(_ context.Context, g *raw.GPU, wanted []raw.Reading) (raw.Handle, error) {
	s := r.shared
	if !s.gate.enter(gatePatience) {
		return nil, fmt.Errorf("open GPU %q: %w", g.PCI, errSMIDown)
	}
	defer s.gate.leave()
	at, known := s.index[g.PCI]
	if !known {
		return nil, fmt.Errorf("open GPU %q: ROCm SMI does not list it", g.PCI)
	}
	h := &smiHandle{shared: s, sys: r.sys, gpu: *g}
	h.bind(at, wanted)
	return h, nil
}

// gatePatience is how long a reading waits while the library is started anew,
// which takes some ten milliseconds where nothing is wrong.
const gatePatience = 400 * time.Millisecond

// errSMIDown says that the library cannot be called: it is being started anew,
// or that went wrong.
var errSMIDown = errors.New("ROCm SMI is not started")
