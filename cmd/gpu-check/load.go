package main

import _ "embed" // the kernels

//go:embed half.ptx
var halfPTX string

//go:embed single.ptx
var singlePTX string

// kernel is a matrix multiplication.
type kernel struct {
	name, ptx, function string
	elementSize         int // of the inputs, in bytes
	oldest              int // compute capability that it needs
	pipe                string
	active              float64 // what the pipe's field shows at least
}

var kernels = []kernel{
	{"tensor cores", halfPTX, "half_matmul", 2, 7, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.2},
	{"FP32", singlePTX, "single_matmul", 4, 5, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", 0.3},
}

// cudaDevice is a GPU as CUDA counts them.
type cudaDevice struct {
	ordinal int
	pci     string
	major   int // of its compute capability
}
