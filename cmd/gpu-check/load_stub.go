//go:build !linux || !cgo

package main

import "errors"

var errNoLoad = errors.New("this binary was built without cgo and cannot load libcuda")

func openCUDA(string) ([]cudaDevice, error) { return nil, errNoLoad }

func multiply(kernel, cudaDevice) error { return errNoLoad }

func setStop(bool) {}
