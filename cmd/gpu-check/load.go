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
	oldest              int // minimum compute capability, first number
	pipe                string
	active              float64 // minimum of the pipe's field under load
}

var kernels = []kernel{
	{"tensor cores", halfPTX, "half_matmul", 2, 7, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.2},
	{"FP32", singlePTX, "single_matmul", 4, 5, "DCGM_FI_PROF_PIPE_FP32_ACTIVE", 0.3},
}

// cudaDevice is a GPU in CUDA's numbering.
type cudaDevice struct {
	ordinal int
	pci     string
	major   int // compute capability, first number
}
