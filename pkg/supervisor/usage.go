package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage is the resource usage of a process.
type usage struct {
	resident int64 // bytes, shared memory included
	cpu      time.Duration
}

// userHz is the unit of times in /proc/<pid>/stat, the same on every Linux.
const userHz = 100

// readUsage reads /proc, which never waits for the process.
func readUsage(pid int) (usage, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	return parseStat(raw, int64(os.Getpagesize()))
}

// parseStat reads fields 14, 15 (utime, stime) and 24 (rss, pages) of proc(5).
func parseStat(raw []byte, page int64) (usage, error) {
	i := bytes.LastIndexByte(raw, ')') // the process name before it may contain anything
	f := bytes.Fields(raw[i+1:])
	const first = 3 // field number of f[0]
	if i < 0 || len(f) <= 24-first {
		return usage{}, errors.New("read /proc: fields are missing")
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(string(f[field-first]), 10, 64) // the kernel writes numbers
		return n
	}
	return usage{number(24) * page, time.Duration(number(14)+number(15)) * (time.Second / userHz)}, nil
}
