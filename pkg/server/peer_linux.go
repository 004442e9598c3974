package server

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the address of a Unix socket's client: its user, "uid:1000". What one user's clients do then costs no other user.
func peer(c *net.UnixConn) (address string) {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	_ = raw.Control(func(fd uintptr) { // an error leaves the address empty: all such clients count as one
		if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			address = fmt.Sprintf("%s%d", userPrefix, who.Uid)
		}
	})
	return address
}
