package supervisor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/session"
)

// The control channel is a Unix stream socket. A message of the child is a length (4 bytes, big endian), a kind (1 byte)
// and that many bytes of JSON. The descriptor of the rings' memory comes with the view.
//
// The parent sends orders: a length and that many bytes of an input, with which the child begins a session. An empty
// order ends the session; the child then waits for the next input. Closing the parent's end asks the child to stop.
//
// Every allocation that a child can cause in the parent is bounded. A node of 16 GPUs with every field and all links
// stays below a tenth of each bound.
const (
	maxSources  = 4 << 10
	maxDevices  = session.MaxDevices
	maxColumns  = session.MaxColumns
	maxRows     = 1024
	maxInterval = 366 * 24 * time.Hour
	maxText     = 1024 // bytes of a reason

	headerBytes = 5
	maxInput    = 64 << 20 // bytes of an input; a list has at most some hundred KiB
)

// maxBytes is the maximum size of a message, by kind.
var maxBytes = [...]uint32{kindView: 16 << 20, kindStates: 8 << 20, kindCosts: 2 << 20}

type kind byte

const (
	kindView   kind = 1 + iota // viewMessage, with a descriptor
	kindStates                 // statesMessage
	kindCosts                  // session.Costs
)

// viewMessage is the result of binding. It is sent at most once in a session.
type viewMessage struct{ Sources []sourceMessage }

// sourceMessage is one source. The rings are in the order of the sources in the memory that comes with the message.
type sourceMessage struct {
	Rows     int
	Interval time.Duration
	Every    []time.Duration
	Devices  devices
	Columns  []collector.Column

	Explanations []collector.Explanation `json:",omitempty"`
	Absent       [][3]uint16             `json:",omitempty"` // device, field and explanation
}

// devices bounds the number of devices while decoding: an empty device takes 3 bytes of a message and a hundred times
// that in memory.
type devices []collector.Device

func (l *devices) UnmarshalJSON(b []byte) error {
	*l = nil
	d := json.NewDecoder(bytes.NewReader(b))
	switch t, err := d.Token(); {
	case err != nil || t == nil: // null
		return err
	case t != json.Delim('['):
		return fmt.Errorf("devices begin with %v", t)
	}
	for d.More() {
		if len(*l) == maxDevices {
			return fmt.Errorf("more than %d devices", maxDevices)
		}
		*l = append(*l, collector.Device{})
		if err := d.Decode(&(*l)[len(*l)-1]); err != nil {
			return err
		}
	}
	return nil
}

// validate refuses a view that would lead readers out of bounds or give two devices one identity.
func (m *viewMessage) validate() error {
	devices, columns, absent := 0, 0, 0
	seen := make(map[string]bool)
	if len(m.Sources) == 0 || len(m.Sources) > maxSources {
		return fmt.Errorf("a view of %d sources, want 1 to %d", len(m.Sources), maxSources)
	}
	for i := range m.Sources {
		s := &m.Sources[i]
		devices, columns = devices+len(s.Devices), columns+len(s.Columns)
		if devices > maxDevices || columns > maxColumns || s.Rows < 1 || s.Rows > maxRows || s.Interval <= 0 || s.Interval > maxInterval {
			return fmt.Errorf("source %d: %d devices and %d columns up to it, %d rows each %v: at most %d, %d and %d",
				i, devices, columns, s.Rows, s.Interval, maxDevices, maxColumns, maxRows)
		}
		if len(s.Every) != 0 && len(s.Every) != len(s.Devices) || slices.ContainsFunc(s.Every, func(d time.Duration) bool { return d <= 0 || d > maxInterval }) {
			return fmt.Errorf("source %d: intervals of %d of %d devices, or not from 1 ns to %v", i, len(s.Every), len(s.Devices), maxInterval)
		}
		for j := range s.Devices {
			id := s.Devices[j].ID
			if id == "" || seen[id] {
				return fmt.Errorf("source %d: device id %q is empty or not unique", i, id)
			}
			seen[id] = true
			if !legal(s.Devices[j].Facts) || !legal(s.Devices[j].Texts) {
				return fmt.Errorf("source %d: device %q has a fact that is no label", i, id)
			}
		}
		for j := range s.Columns {
			c := &s.Columns[j]
			if c.Device < 0 || c.Device >= len(s.Devices) || !legal(c.Labels) {
				return fmt.Errorf("source %d: column %d is of device %d of %d, or has a label with an illegal name", i, j, c.Device, len(s.Devices))
			}
		}
		if absent += len(s.Absent); absent > maxColumns {
			return fmt.Errorf("source %d: %d absent fields up to it: at most %d", i, absent, maxColumns)
		}
		if err := s.validateReasons(); err != nil {
			return fmt.Errorf("source %d: %w", i, err)
		}
	}
	return nil
}

// validateReasons refuses reasons that cannot be labels, and references to nothing.
func (s *sourceMessage) validateReasons() error {
	if len(s.Explanations) > collector.MaxExplanations {
		return fmt.Errorf("%d explanations: at most %d", len(s.Explanations), collector.MaxExplanations)
	}
	for _, e := range s.Explanations {
		if !e.Reason.Valid() || len(e.Detail) > maxText {
			return fmt.Errorf("an explanation of %d bytes with the reason %.40q", len(e.Detail), e.Reason)
		}
	}
	for _, a := range s.Absent {
		if int(a[0]) >= len(s.Devices) || int(a[2]) >= len(s.Explanations) {
			return fmt.Errorf("field %d is absent of device %d of %d, for explanation %d of %d", a[1], a[0], len(s.Devices), a[2], len(s.Explanations))
		}
	}
	return nil
}

// legal reports whether labels can be exported.
func legal(labels []collector.Label) bool {
	return !slices.ContainsFunc(labels, func(l collector.Label) bool { return !model.LegacyValidation.IsValidLabelName(l.Name) })
}

// statesMessage is the state of the session, sent at least once a second. It names only the devices that are not simply
// up. The rings say when each was last sampled.
type statesMessage struct {
	Devices []deviceMessage
	// Ended marks the last message of a session. Cause and Reason say why the session ended; both are empty if the
	// parent asked for it. Waits says that the child waits for another input.
	Ended  bool          `json:",omitempty"`
	Waits  bool          `json:",omitempty"`
	Cause  session.Cause `json:",omitempty"`
	Reason string        `json:",omitempty"`
}

// deviceMessage is the state of one device, identified by its index among the devices of all sources.
type deviceMessage struct {
	Device int
	State  session.State
	Cause  session.Cause
	Reason string
}

// sender is the child's end.
type sender struct {
	mu   sync.Mutex
	conn *net.UnixConn
}

// send writes one message. A non-negative fd is passed with it.
func (s *sender) send(k kind, payload []byte, fd int) error {
	if len(payload) > int(maxBytes[k]) {
		return fmt.Errorf("message of %d bytes: at most %d are sent to the exporter", len(payload), maxBytes[k])
	}
	b := make([]byte, headerBytes, headerBytes+len(payload))
	binary.BigEndian.PutUint32(b, uint32(len(payload)))
	b[4] = byte(k)
	b = append(b, payload...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if fd >= 0 {
		n, _, err := s.conn.WriteMsgUnix(b[:headerBytes], unix.UnixRights(fd), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := s.conn.Write(b)
	return err
}

func (s *sender) sendJSON(k kind, message any, fd int) error {
	payload, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return s.send(k, payload, fd)
}

// sendOrder sends an order to a child.
func sendOrder(conn *net.UnixConn, input []byte) error {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(input)))
	_, err := conn.Write(append(b, input...))
	return err
}

// readOrder reads an order of the parent. It returns io.EOF when the parent asks the child to stop.
func readOrder(conn *net.UnixConn) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > maxInput {
		return nil, fmt.Errorf("%w: an order of %d bytes", errChannel, n)
	}
	input := make([]byte, n)
	_, err := io.ReadFull(conn, input)
	return input, err
}

// errChannel means that the child broke the channel's rules.
var errChannel = errors.New("control channel")

// receiver is the parent's end.
type receiver struct {
	conn *net.UnixConn
	fd   int // received with the current message; -1: none
}

// next reads one message. It returns io.EOF when the child has closed its end.
func (r *receiver) next() (kind, []byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n, k := binary.BigEndian.Uint32(header[:]), kind(header[4])
	if int(k) >= len(maxBytes) || n > maxBytes[k] {
		return 0, nil, fmt.Errorf("%w: a message of kind %d with %d bytes", errChannel, k, n)
	}
	var payload bytes.Buffer // grows as bytes arrive, so that a length alone costs nothing
	_, err := io.CopyN(&payload, r, int64(n))
	return k, payload.Bytes(), err
}

// Read reads a part of a message, and stores a descriptor that arrives with it.
func (r *receiver) Read(b []byte) (int, error) {
	var rights [64]byte
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(b, rights[:])
	if oobn > 0 || flags&unix.MSG_CTRUNC != 0 {
		if err := r.storeFD(rights[:oobn], flags); err != nil {
			return 0, err // with bytes it could be lost
		}
	}
	return n, err
}

func (r *receiver) storeFD(oob []byte, flags int) error {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		got, ferr := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, got...), errors.Join(err, ferr)
	}
	if err == nil && len(fds) == 1 && r.fd < 0 && flags&unix.MSG_CTRUNC == 0 {
		r.fd = fds[0]
		unix.CloseOnExec(r.fd)
		return nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return fmt.Errorf("%w: %d descriptors with a message: %w", errChannel, len(fds), err)
}

// takeFD returns the descriptor of the current message, or -1. The caller owns it.
func (r *receiver) takeFD() int {
	fd := r.fd
	r.fd = -1
	return fd
}

func (r *receiver) close() {
	if fd := r.takeFD(); fd >= 0 {
		_ = unix.Close(fd)
	}
	_ = r.conn.Close()
}

// connOf turns one end of a socket pair into a connection and closes the file.
func connOf(f *os.File) (*net.UnixConn, error) {
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open control channel: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("open control channel: %s is no Unix socket", f.Name()), c.Close())
	}
	return u, nil
}
