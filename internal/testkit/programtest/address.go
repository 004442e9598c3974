package programtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Address returns the loopback host:port on which the process listens, for TCP over IPv4. A test starts servers on
// port 0, because another program could take a port chosen before the start.
func (p *Process) Address() (string, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.PID()))
	if err != nil {
		return "", err
	}
	open := OpenFiles(p.PID())
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st … uid timeout inode; 0A is LISTEN (proc_net_tcp.rst of Linux)
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" || !slices.Contains(open, "socket:["+f[9]+"]") {
			continue
		}
		var ip, port int
		if _, err := fmt.Sscanf(f[1], "%x:%x", &ip, &port); err != nil {
			return "", fmt.Errorf("read %q: %w", line, err)
		}
		return fmt.Sprintf("127.0.0.1:%d", port), nil
	}
	return "", errors.New("it does not listen yet")
}

// OpenFiles returns the targets of a process's open descriptors, none if it has ended.
func OpenFiles(pid int) (out []string) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil { // else it was closed meanwhile
			out = append(out, target)
		}
	}
	return out
}
