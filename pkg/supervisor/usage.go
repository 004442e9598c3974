package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage is what a process costs.
type usage struct {
	resident int64 // bytes, shared memory included
	cpu      time.Duration
}

// userHz is the unit of times in /proc/<pid>/stat, the same on every Linux.
const userHz = 100

// readUsage reads /proc, which waits for nothing that the process does.
func readUsage(pid int) (usage, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	return parseStat(raw, int64(os.Getpagesize()))
}

// parseStat reads fields 14, 15 (utime, stime) and 24 (rss, pages) of proc(5).
func parseStat(raw []byte, page int64) (usage, error) {
	i := bytes.LastIndexByte(raw, ')') // the name before it may hold anything
	f := bytes.Fields(raw[i+1:])
	const first = 3 // number of the field at f[0]
	if i < 0 || len(f) <= 24-first {
		return usage{}, errors.New("read /proc: fields are missing")
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(string(f[field-first]), 10, 64) // the kernel writes numbers
		return n
	}
	return usage{number(24) * page, time.Duration(number(14)+number(15)) * (time.Second / userHz)}, nil
}
