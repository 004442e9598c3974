package sysfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
)

// Options change where and how the reader looks.
type Options struct {
	Root string           // directory that holds sys/; "" means "/"
	Log  *zap.Logger      // nil: none
	Now  func() time.Time // nil: time.Now
}

// Reader is the reader that needs no library. Find finds the GPUs for the other
// one, too.
type Reader struct {
	o       Options
	decoder *gpumetrics.Decoder

	mu      sync.Mutex
	finding chan struct{} // closed when the last search has ended; nil before the first
}

var _ raw.Reader = (*Reader)(nil)

// New returns a reader and touches nothing.
func New(o Options) *Reader {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reader{o: o, decoder: gpumetrics.New()}
}

// path is where a path below /sys is.
func (r *Reader) path(name string) string { return filepath.Join("/", r.o.Root, "sys", name) }

// errFinding is a driver that hangs in a file that is read once.
var errFinding = errors.New("an earlier search for gpus still waits for the driver")

// found is what a search found.
type found struct {
	gpus []raw.GPU
	node raw.Node
	err  error
}

// Find finds the GPUs that amdgpu drives, in order of PCI address. That is the
// order of rocm-smi; the order of DRM cards is that of probing and may begin
// with the display of the server's management controller. None is no error.
// Errors: that of ctx, when the driver does not answer in time. The search then
// goes on alone, and until it ends no other begins.
func (r *Reader) Find(ctx context.Context) ([]raw.GPU, raw.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finding != nil {
		select {
		case <-r.finding:
		default:
			return nil, raw.Node{}, errFinding
		}
	}
	r.finding = make(chan struct{})
	result := make(chan found, 1)
	go func(ended chan struct{}) {
		defer close(ended)
		var f found
		f.gpus, f.err = r.boards()
		f.node = raw.Node{Driver: r.driverVersion()}
		result <- f
	}(r.finding)
	select {
	case f := <-result:
		return f.gpus, f.node, f.err
	case <-ctx.Done():
		return nil, raw.Node{}, fmt.Errorf("find gpus in %q: %w", r.path(""), ctx.Err())
	}
}

// Open prepares to read a GPU. The Handle is a raw.Files. No file is opened
// before the first Read, so that a GPU that hangs only delays its own source.
func (r *Reader) Open(_ context.Context, g *raw.GPU, wanted []raw.Reading) (raw.Handle, error) {
	return newHandle(r, g, wanted), nil
}

// Close has nothing to release: every Handle closes its own files.
func (r *Reader) Close() error { return nil }
