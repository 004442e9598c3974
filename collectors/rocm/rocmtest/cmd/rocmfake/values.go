package main

import (
	"fmt"
	"strconv"
	"strings"

	"warpgauge/collectors/rocm/rocmtest"
)

// suspended is the flag of suspended GPUs.
type suspended rocmtest.Options

func (s *suspended) String() string { return "" }

func (s *suspended) Set(text string) error {
	gpu, err := strconv.Atoi(text)
	if err == nil {
		s.Suspended = append(s.Suspended, gpu)
	}
	return err
}

// computing is the flag of processes. A process on several GPUs has one flag per GPU.
type computing rocmtest.Options

func (c *computing) String() string { return "" }

func (c *computing) Set(text string) error {
	pid, use, err := parseUse(text)
	if err != nil {
		return err
	}
	for i := range c.Processes {
		if p := &c.Processes[i]; p.PID == pid {
			p.Uses = append(p.Uses, use)
			return nil
		}
	}
	c.Processes = append(c.Processes, rocmtest.Process{PID: pid, Uses: []rocmtest.Use{use}})
	return nil
}

// copied is how long the copy engines have worked for a process, µs.
const copied = 1234

func parseUse(text string) (pid int, use rocmtest.Use, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 4 {
		return 0, use, fmt.Errorf("want PID:GPU[.INSTANCE]:BYTES:CUS")
	}
	gpu, instance, divided := strings.Cut(parts[1], ".")
	use.SDMA = copied
	if pid, err = strconv.Atoi(parts[0]); err != nil {
		return 0, use, err
	}
	if use.GPU, err = strconv.Atoi(gpu); err != nil {
		return 0, use, err
	}
	if divided {
		if use.Instance, err = strconv.Atoi(instance); err != nil {
			return 0, use, err
		}
	}
	if use.VRAM, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
		return 0, use, err
	}
	use.CUs, err = strconv.ParseUint(parts[3], 10, 64)
	return pid, use, err
}
