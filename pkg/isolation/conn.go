package isolation

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// sendTimeout is how long a frame may take to leave. The socket holds hundreds
// of them, so one that takes longer means that the other side does not read.
const sendTimeout = 5 * time.Second

// conn is one end of the control channel. Any goroutine may send, one receives.
type conn struct {
	unix *net.UnixConn
	frames
	fds []int // received, not yet taken; of the receiver

	mu  sync.Mutex // guards what follows and the order of frames
	buf []byte
}

// newConn takes over a connected Unix stream socket.
func newConn(f *os.File) (*conn, error) {
	defer func() { _ = f.Close() }() // FileConn made a duplicate
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use control channel: %w", err)
	}
	unix, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("use control channel: it is a %T, want a Unix socket", c)
	}
	return &conn{unix: unix}, nil
}

// parentEnd reads without room for descriptors: those that a child gone mad
// sends are closed by the kernel.
func (c *conn) parentEnd() *conn {
	c.r = c.unix
	return c
}

// childEnd keeps the descriptors that come with what it reads.
func (c *conn) childEnd() *conn {
	c.r = descriptorReader{c}
	return c
}

// send sends a message.
func (c *conn) send(k kind, m message) error { return c.sendFile(k, m, -1) }

// sendFile sends a message and a copy of a descriptor, if that is not negative.
func (c *conn) sendFile(k kind, m message, fd int) error {
	payload := marshal(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.buf, err = appendFrame(c.buf[:0], k, payload); err != nil {
		return err
	}
	if err := c.unix.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("send message %d: %w", k, err)
	}
	rest := c.buf
	if fd >= 0 {
		n, _, err := c.unix.WriteMsgUnix(rest, syscall.UnixRights(fd), nil)
		if err != nil {
			return fmt.Errorf("send message %d: %w", k, err)
		}
		rest = rest[n:]
	}
	if _, err := c.unix.Write(rest); err != nil && len(rest) > 0 {
		return fmt.Errorf("send message %d: %w", k, err)
	}
	const keep = 64 << 10 // a large message is rare
	if cap(c.buf) > keep {
		c.buf = nil
	}
	return nil
}

func (c *conn) close() { _ = c.unix.Close() }

// takeFile returns the oldest descriptor received.
func (c *conn) takeFile() (int, error) {
	if len(c.fds) == 0 {
		return -1, errors.New("no descriptor came with the message: none may be left in this process")
	}
	fd := c.fds[0]
	c.fds = c.fds[1:]
	return fd, nil
}

type descriptorReader struct{ c *conn }

func (r descriptorReader) Read(b []byte) (int, error) {
	oob := make([]byte, syscall.CmsgSpace(4*4))
	n, oobn, _, _, err := r.c.unix.ReadMsgUnix(b, oob)
	if err != nil {
		return n, err
	}
	if oobn > 0 {
		messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return n, fmt.Errorf("receive descriptor: %w", err)
		}
		for i := range messages {
			fds, err := syscall.ParseUnixRights(&messages[i])
			if err != nil {
				return n, fmt.Errorf("receive descriptor: %w", err)
			}
			r.c.fds = append(r.c.fds, fds...)
		}
	}
	return n, nil
}
