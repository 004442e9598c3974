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
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// The control channel is a Unix stream socket. A frame is a length (4 bytes, big endian) and that many bytes. A frame of
// the child is a message as JSON. The descriptor of the rings' memory comes with the view.
//
// The parent sends orders: an input, with which the child begins a session, or an empty frame, which ends the session;
// the child then waits for the next input. Closing the parent's end asks the child to stop.
//
// Every allocation that a child can cause in the parent is bounded. A node of 16 GPUs with every field and all links
// stays below a tenth of each bound, and three quarters of maxPage. The largest view takes less than 64 MiB, pages included.
const (
	maxSources  = 4 << 10
	maxDevices  = maxPage / deviceBytes
	maxColumns  = session.MaxColumns
	maxRows     = 1024
	maxInterval = 366 * 24 * time.Hour
	maxText     = 1024     // bytes of a reason
	maxTexts    = 16 << 10 // bytes of a text, of all texts of a device, or of all labels of a column, as JSON
	deviceBytes = 4 << 10  // of a device without readings, about: it has series of its state, and is in the API
	seriesBytes = 448      // of a series without its labels, about: 1,000 in memory, with every form of the page
	maxPage     = 32 << 20 // bytes of the page, about; each series repeats the texts of its device

	headerBytes = 4
	maxMessage  = 16 << 20 // bytes of a view's message
	maxReport   = 4 << 20  // bytes of another message
	maxCommas   = 1 << 20  // in a message, and so elements
	maxDepth    = 32
	maxInput    = 64 << 20 // bytes of an input; a list has at most some hundred KiB
)

// limits bounds the elements of a message's lists and maps by name: an empty device takes 3 bytes, and a hundred times that in memory.
var limits = map[string]int{"View": maxSources, "Sources": maxSources, "Devices": maxDevices, "Columns": maxPage / seriesBytes, "Labels": maxColumns, "Facts": maxColumns, "Texts": maxColumns,
	"Absent": maxColumns, "Explanations": maxDevices, "Calls": maxSources, "Implausible": maxSources}

// container is a list or an object around a value of a JSON text.
type container struct {
	name, next  string // its own, and that of the value after its last key, if limits has them
	object, key bool   // a value follows a key
}

// ahead keeps a decoder from reading a text, or spaces, of far more than maxTexts bytes, and from copying it.
type ahead struct {
	*bytes.Reader
	of *json.Decoder
}

func (a *ahead) Read(b []byte) (int, error) {
	if read := a.Size() - int64(a.Len()); read-a.of.InputOffset() > maxTexts {
		return 0, fmt.Errorf("a text of more than %d bytes", maxTexts)
	}
	return a.Reader.Read(b)
}

// countElements returns an error if a JSON text has more elements than limits allows, a long text, or a part that no message has. It
// takes time in proportion to the text.
func countElements(text []byte) error {
	open, counts := []container{{}}, map[string]int{}
	from := &ahead{Reader: bytes.NewReader(text)}
	from.of = json.NewDecoder(from)
	for t, err := from.of.Token(); !errors.Is(err, io.EOF); t, err = from.of.Token() {
		in := &open[len(open)-1]
		delimiter, _ := t.(json.Delim)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errChannel, err)
		case delimiter == ']' || delimiter == '}':
			open = open[:len(open)-1]
			continue
		case in.object && !in.key:
			in.key, in.next = true, ""
			key, _ := t.(string)
			unknown := len(open) == 2 && key != "View" && key != "States" && key != "Costs"
			if unknown || len(key) > maxText || strings.Map(field.Printable, key) != key { // it may become a label
				return fmt.Errorf("%w: a message with the name %.40q of %d bytes", errChannel, key, len(key))
			}
			for known := range limits {
				if strings.EqualFold(known, key) { // as encoding/json does
					in.next = known
				}
			}
			continue
		}
		if counts[in.name]++; counts[in.name] > limits[in.name] && in.name != "" {
			return fmt.Errorf("%w: %d elements of %s: at most %d", errChannel, counts[in.name], in.name, limits[in.name])
		}
		in.key = false
		if delimiter != 0 {
			if open = append(open, container{name: in.next, object: delimiter == '{'}); len(open) > maxDepth {
				return fmt.Errorf("%w: a message of more than %d levels", errChannel, maxDepth)
			}
		}
	}
	return nil
}

// message is a message of the child. States and Costs may come together.
type message struct {
	View   viewMessage    `json:",omitempty"` // with a descriptor; at most once in a session
	States *statesMessage `json:",omitempty"`
	Costs  *session.Costs `json:",omitempty"`
}

// viewMessage is the result of binding. The rings are in the order of the sources in the memory that comes with it.
type viewMessage []sourceMessage

// sourceMessage is a source and the number of rows in its ring.
type sourceMessage struct {
	Rows int
	view.Source
}

// validate refuses a view that would lead readers out of bounds or give two devices one identity.
func (m viewMessage) validate() error {
	devices, columns, absent, page := 0, 0, 0, 0
	seen, boards := make(map[string]bool), make(map[field.Level]int)
	if len(m) == 0 || len(m) > maxSources {
		return fmt.Errorf("a view of %d sources, want 1 to %d", len(m), maxSources)
	}
	for i := range m {
		s := &m[i]
		devices, columns = devices+len(s.Devices), columns+len(s.Columns)
		if devices > maxDevices || columns > maxColumns || s.Rows < 1 || s.Rows > maxRows || s.Interval <= 0 || s.Interval > maxInterval {
			return fmt.Errorf("source %d: %d devices and %d columns up to it, %d rows each %v: at most %d, %d and %d",
				i, devices, columns, s.Rows, s.Interval, maxDevices, maxColumns, maxRows)
		}
		if len(s.Every) != 0 && len(s.Every) != len(s.Devices) || slices.ContainsFunc(s.Every, func(d time.Duration) bool { return d <= 0 || d > maxInterval }) {
			return fmt.Errorf("source %d: intervals of %d of %d devices, or not from 1 ns to %v", i, len(s.Every), len(s.Devices), maxInterval)
		}
		texts := make([]int, len(s.Devices))
		for j := range s.Devices {
			d := &s.Devices[j]
			texts[j], *d = textsOf(*d), session.Clean(*d)
			if page += deviceBytes + texts[j]; texts[j] > maxTexts || page > maxPage {
				return fmt.Errorf("source %d: the texts of device %.40q have %d bytes, and the page up to it %d: at most %d and %d", i, d.ID, texts[j], page, maxTexts, maxPage)
			}
			if d.ID == "" || seen[d.ID] || !legal(d.Facts) || !legal(d.Texts) {
				return fmt.Errorf("source %d: device id %q is empty or not unique, or has a fact that is not a label", i, d.ID)
			}
			seen[d.ID] = true
			if boards[d.Level]++; boards[d.Level] > collector.MaxGPUs && (d.Level == field.GPU || d.Level == field.Switch || d.Level == field.ConnectX) {
				return fmt.Errorf("source %d: device %q is one of more than %d of its kind", i, d.ID, collector.MaxGPUs)
			}
		}
		for j := range s.Columns {
			c := &s.Columns[j]
			if c.Device < 0 || c.Device >= len(s.Devices) || !legal(c.Labels) {
				return fmt.Errorf("source %d: column %d is of device %d of %d, or has a label with an illegal name", i, j, c.Device, len(s.Devices))
			}
			labels := textsOf(c.Labels)
			c.Labels = session.CleanLabels(c.Labels)
			if page += seriesBytes + texts[c.Device] + labels; labels > maxTexts || page > maxPage {
				return fmt.Errorf("source %d: the texts of column %d have %d bytes, and the series up to it need a page of %d: at most %d and %d; select fewer devices or fields", i, j, labels, page, maxTexts, maxPage)
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
	for i, e := range s.Explanations {
		s.Explanations[i].Detail = strings.Map(field.Printable, e.Detail)
		if !e.Reason.Valid() || len(e.Detail) > maxText {
			return fmt.Errorf("an explanation of %d bytes with the reason %.40q", len(e.Detail), e.Reason)
		}
	}
	for _, a := range s.Absent {
		if a.Device < 0 || a.Device >= len(s.Devices) || int(a.Explanation) >= len(s.Explanations) {
			return fmt.Errorf("field %d is absent of device %d of %d, for explanation %d of %d",
				a.Field, a.Device, len(s.Devices), a.Explanation, len(s.Explanations))
		}
	}
	return nil
}

func printable(reason string) string {
	return strings.Map(field.Printable, strings.Clone(reason[:min(len(reason), maxText)]))
}

// textsOf returns about how many bytes the texts of a device or of labels have.
func textsOf(v any) int {
	text, _ := json.Marshal(v) // it was made from JSON
	return len(text)
}

// legal reports whether labels can be exported.
func legal(labels []collector.Label) bool {
	return !slices.ContainsFunc(labels, func(l collector.Label) bool { return !model.LegacyValidation.IsValidLabelName(l.Name) })
}

// statesMessage is the state of the session, sent at least every 3 s. It names only the devices that are not simply
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
func (s *sender) send(m *message, fd int) error {
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if n := bytes.Count(payload, []byte{','}); n > maxCommas || len(payload) > maxMessage {
		return fmt.Errorf("message of %d bytes and %d elements: at most %d and %d are sent to the exporter; select fewer devices or fields",
			len(payload), n, maxMessage, maxCommas)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeFrame(s.conn, payload, fd)
}

// writeFrame writes a frame. A non-negative fd is passed with it.
func writeFrame(conn *net.UnixConn, payload []byte, fd int) error {
	b := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
	if fd >= 0 {
		n, _, err := conn.WriteMsgUnix(b[:headerBytes], unix.UnixRights(fd), nil)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := conn.Write(b)
	return err
}

// readFrame reads a frame. It returns io.EOF when the other side has closed its end.
func readFrame(from io.Reader, most uint32) ([]byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if n > most {
		return nil, fmt.Errorf("%w: a message of %d bytes", errChannel, n)
	}
	payload := make([]byte, min(n, 64<<10)) // a length alone costs little
	read, err := io.ReadFull(from, payload)
	if err == nil && uint32(read) < n {
		payload = slices.Grow(payload, int(n)-read)[:n]
		_, err = io.ReadFull(from, payload[read:])
	}
	return payload, err
}

// errChannel means that the child broke the channel's rules.
var errChannel = errors.New("control channel")

// receiver is the parent's end.
type receiver struct {
	conn *net.UnixConn
	fd   int // received with the current message; -1: none
}

// next reads one message. It returns io.EOF when the child has closed its end.
func (r *receiver) next() (m message, err error) {
	payload, err := readFrame(r, maxMessage)
	if err != nil {
		return m, err
	}
	if n := bytes.Count(payload, []byte{','}); n > maxCommas {
		return m, fmt.Errorf("%w: a message of %d elements: at most %d", errChannel, n, maxCommas)
	}
	if err := countElements(payload); err != nil {
		return m, err
	}
	if err := json.Unmarshal(payload, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errChannel, err)
	}
	if len(payload) > maxReport && m.View == nil {
		return m, fmt.Errorf("%w: a message of %d bytes without a view: at most %d", errChannel, len(payload), maxReport)
	}
	return m, nil
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
