//go:build !linux || !cgo

package main

import "errors"

var errNoLoad = errors.New("this binary was built without cgo and cannot load libcuda")

func openCUDA(string) ([]cudaDevice, error) { return nil, errNoLoad }

func multiply(_ kernel, d cudaDevice) outcome { return outcome{device: d, err: errNoLoad} }

func setStop(bool) {}

func runningLoads() int { return 0 }
