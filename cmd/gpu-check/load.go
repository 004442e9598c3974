package main

import (
	_ "embed"
	"fmt"
	"strings"
	"time"
)

//go:embed half.ptx
var halfPTX string

//go:embed single.ptx
var singlePTX string

// kernel is a matrix multiplication.
type kernel struct {
	name   string
	ptx    string
	number int // in cuda.h
	oldest int // compute capability that it needs, × 10
}

var (
	halfKernel   = kernel{"half precision on tensor cores", halfPTX, 0, 70}
	singleKernel = kernel{"single precision without tensor cores", singlePTX, 1, 50}
)

// cudaDevice is a GPU as CUDA counts them.
type cudaDevice struct {
	ordinal    int
	pci        string
	capability int // × 10
}

// outcome of a load on one GPU.
type outcome struct {
	device   cudaDevice
	err      error
	teraflop float64 // per second
}

// load is a multiplication on several GPUs at once.
type load struct {
	results chan outcome
	count   int
}

// startLoad starts a multiplication on devices and returns when all compute.
func startLoad(k kernel, devices []cudaDevice) (*load, error) {
	setStop(false)
	l := &load{results: make(chan outcome, len(devices)), count: len(devices)}
	for _, d := range devices {
		go func() { l.results <- multiply(k, d) }()
	}
	const patience = time.Minute // the driver may compile for a while
	for start := time.Now(); runningLoads() < l.count; time.Sleep(10 * time.Millisecond) {
		if len(l.results) > 0 || time.Since(start) > patience {
			return nil, l.failure()
		}
	}
	return l, nil
}

// failure ends a load that did not start.
func (l *load) failure() error {
	var text []string
	for _, o := range l.stop() {
		if o.err != nil {
			text = append(text, fmt.Sprintf("%s: %v", o.device.pci, o.err))
		}
	}
	if text == nil {
		return fmt.Errorf("the multiplication did not start in time")
	}
	return fmt.Errorf("multiply on the GPU: %s", strings.Join(text, "; "))
}

// stop ends the load and returns what came of it.
func (l *load) stop() []outcome {
	setStop(true)
	out := make([]outcome, 0, l.count)
	for range l.count {
		out = append(out, <-l.results)
	}
	return out
}
