package config

import (
	"fmt"
	"net"
	"strings"
)

// Hostname returns the value of the hostname label, by dcgm-exporter's rule:
// NODE_NAME; else, outside Kubernetes with a remote host engine, the host of
// that engine; else the name that the operating system gives. It is empty where
// the label is not wanted. A loopback engine is this machine, so it does not
// give its name: "localhost" on every node would merge their series.
func (c *Config) Hostname(lookup func(string) (string, bool), system func() (string, error)) (string, error) {
	if c.NoHostname {
		return "", nil
	}
	if node, ok := lookup("NODE_NAME"); ok && node != "" {
		return node, nil
	}
	if !c.Kubernetes.Enabled && c.RemoteHostEngine() {
		if host := engineHost(c.HostEngine.Address); host != "" {
			return host, nil
		}
	}
	name, err := system()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w; set NODE_NAME, or leave the label out with --no-hostname", err)
	}
	return name, nil
}

// engineHost returns the host of HOST, HOST:PORT, [IPV6]:PORT or tcp://HOST:PORT,
// and nothing for this machine: loopback addresses, unix and vsock sockets.
func engineHost(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	} else if scheme != "tcp" {
		return ""
	}
	host, _, err := net.SplitHostPort(rest)
	if err != nil {
		host = strings.Trim(rest, "[]")
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return ""
	}
	return host
}
