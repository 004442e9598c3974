package exporter

import (
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// dropAfter is how long after its start a process drops the code that only the start needed.
const dropAfter = 10 * time.Second

// dropStart returns free memory, and drops the pages of this program. The kernel maps again what still runs, about a third.
func dropStart() {
	debug.FreeOSMemory()
	if program, err := os.Readlink("/proc/self/exe"); err == nil {
		dropPages(program)
	}
}

// dropPages drops the private pages of a file where nothing was written to. The file must stay mapped meanwhile.
func dropPages(path string) {
	text, _ := os.ReadFile("/proc/self/smaps")
	clean := regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) .-.p .* ` + regexp.QuoteMeta(path) + `\n(?:\w+:.*\n)*?Anonymous: +0 kB\n(?:\w+:.*\n)*?Swap: +0 kB\n`)
	for _, m := range clean.FindAllSubmatch(text, -1) {
		from, _ := strconv.ParseUint(string(m[1]), 16, 64)
		to, _ := strconv.ParseUint(string(m[2]), 16, 64)
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
	}
}
