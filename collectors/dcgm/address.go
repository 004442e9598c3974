package dcgm

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// defaultPort is nv-hostengine's.
const defaultPort = 5555

// address is the address of a host engine.
type address struct {
	text string // as the library expects it
	unix bool   // the path of a socket, for dcgmConnect_v2
	url  bool   // tcp://, unix://, vsock:// for dcgmConnect_v3
	far  bool   // reached over TCP: large replies are slow
}

// parseAddress parses a value of --remote-hostengine-info: host, host:port, [IPv6]:port, the path of a Unix socket, or
// a URL tcp://, unix://, vsock://. The default port is 5555. v3 says that the library has dcgmConnect_v3. vsock needs
// it; parseAddress resolves the other URLs itself.
func parseAddress(s string, v3 bool) (address, error) {
	scheme, rest, isURL := strings.Cut(s, "://")
	switch {
	case s == "":
		return address{}, fmt.Errorf("address of the host engine is empty")
	case strings.Contains(s, "\x00"): // would end the C string
		return address{}, fmt.Errorf("address of the host engine %q: a zero byte", s)
	case !isURL && strings.HasPrefix(s, "/"):
		return address{text: s, unix: true}, nil
	case !isURL:
		return tcpAddress(s)
	}
	switch strings.ToLower(scheme) {
	case "unix":
		if !strings.HasPrefix(rest, "/") {
			return address{}, fmt.Errorf("address of the host engine %q: a path must follow unix://", s)
		}
		return address{text: rest, unix: true}, nil
	case "tcp":
		return tcpAddress(rest)
	case "vsock":
		if !v3 {
			return address{}, fmt.Errorf("address of the host engine %q: vsock needs libdcgm 4.5 or newer (dcgmConnect_v3)", s)
		}
		return address{text: s, url: true, far: true}, nil
	}
	return address{}, fmt.Errorf("address of the host engine %q: know host:port, /path, tcp://, unix:// and vsock://", s)
}

// tcpAddress formats host and port for DCGM, with an IPv6 address in brackets.
func tcpAddress(s string) (address, error) {
	host, port := s, strconv.Itoa(defaultPort)
	switch ip := net.ParseIP(s); {
	case ip != nil: // "::1" and "10.0.0.1"
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		host = s[1 : len(s)-1]
	case strings.Contains(s, ":"):
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return address{}, fmt.Errorf("address of the host engine %q: %w", s, err)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return address{}, fmt.Errorf("address of the host engine %q: %q is not a port", s, port)
	}
	if host == "" || strings.ContainsAny(host, "[]/ \t\r\n\x00") {
		return address{}, fmt.Errorf("address of the host engine %q: no host", s)
	}
	return address{text: net.JoinHostPort(host, port), far: true}, nil
}
