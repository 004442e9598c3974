package supervisor

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Reasons why a child had to be replaced, in warpgauge_collector_child_ends_total.
const (
	ReasonExit     = "exit"     // ended by itself
	ReasonSignal   = "signal"   // ended by a signal from outside
	ReasonCrash    = "crash"    // SIGSEGV and the like, or a panic
	ReasonAbort    = "abort"    // abort() or a failed assertion
	ReasonHung     = "hung"     // silent, or all its calls hang; killed
	ReasonProtocol = "protocol" // broke a bound or rule of the channel; killed
	ReasonMemory   = "memory"   // over the limit
	ReasonStart    = "start"    // could not be started
	ReasonOutdated = "outdated" // its library no longer matches the driver
)

var reasons = []string{
	ReasonAbort, ReasonCrash, ReasonExit, ReasonHung, ReasonMemory, ReasonOutdated, ReasonProtocol, ReasonSignal, ReasonStart,
}

// child is a separate process and its current session. When a session has ended, the next one can begin in the same
// process, so that its library misses no event.
type child struct {
	o      *Options
	log    *zap.Logger
	cmd    *exec.Cmd
	pid    int
	mark   string // in its environment
	conn   *receiver
	output *output
	born   time.Time
	news   chan struct{}
	orders chan []byte
	end    chan struct{} // closed when the process has ended

	heard atomic.Int64 // when the last message came, ns since born
	cost  atomic.Pointer[usage]
	view  atomic.Pointer[[]*view.Source]
	said  atomic.Pointer[[]session.DeviceStatus] // from the last message: the devices that are not simply up
	spent atomic.Pointer[session.Costs]
	stuck atomic.Bool  // killed but not gone
	cpu   atomic.Int64 // ns, set when the process has ended

	mu     sync.Mutex
	why    *ending       // why the parent ends it, or the child's own reason
	over   chan struct{} // closed when the session has ended
	waits  bool          // the session has ended, and the process waits for another list
	killed time.Time     // zero: not killed
	list   field.List

	// Used by the supervisor's goroutine only.
	checked  time.Time
	measured time.Time // when cost was read
	began    time.Time // of the session
	hungFrom time.Time // since when every call hangs
}

// usage is the memory and processor time of a process.
type usage struct {
	resident int64 // bytes, shared memory included
	cpu      time.Duration
}

// self is the running program, even after its file was replaced.
const self = "/proc/self/exe"

// input is the order to begin a session, as JSON.
type input struct {
	Until   map[string]int64
	Dialect *field.Dialect `json:",omitempty"`
	List    string         // as in a file
}

// inputOf encodes the input of a session.
func inputOf(list field.List, until map[string]int64) []byte {
	text, err := json.Marshal(input{until, list.Dialect, string(field.Format(list))})
	if err != nil {
		panic(fmt.Sprintf("supervisor: write the input of a child: %v", err)) // of numbers and texts
	}
	return text
}

// startChild starts the same program again and begins a session in it.
func startChild(list field.List, until map[string]int64, o *Options, log *zap.Logger) (*child, error) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // endLeftovers finds the child's orphans; else init reaps them
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make control channel: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	defer func() { _ = theirs.Close() }()
	conn, err := connOf(os.NewFile(uintptr(fds[0]), "control"))
	if err != nil {
		return nil, err
	}
	c := &child{
		o: o, log: log, mark: markVariable + rand.Text(), conn: &receiver{conn: conn, fd: -1}, born: time.Now(),
		news: make(chan struct{}, 1), orders: make(chan []byte, 4), end: make(chan struct{}), waits: true,
	}
	c.cost.Store(&usage{})
	c.output = &output{log: o.Logger, collector: o.Name, echo: o.Output}
	c.cmd = &exec.Cmd{
		Path: self, Args: o.Command, Env: append(environment(os.Environ(), o.Environment), c.mark),
		Stdout: c.output, Stderr: c.output, WaitDelay: drainTime,
		ExtraFiles:  []*os.File{theirs}, // becomes ControlFD
		SysProcAttr: childAttributes,
	}
	if err := c.cmd.Start(); err != nil {
		c.conn.close()
		return nil, err
	}
	c.pid = c.cmd.Process.Pid
	living.Store(c.pid, nil)
	c.output.pid.Store(int64(c.pid))
	c.log = log.With(zap.Int("pid", c.pid))
	c.begin(list, until)
	go c.sendOrders()
	go c.run()
	return c, nil
}

// begin begins a session in a process that waits for one. It returns false if the process does not.
func (c *child) begin(list field.List, until map[string]int64) bool {
	c.mu.Lock()
	if !c.waits || !c.killed.IsZero() {
		c.mu.Unlock()
		return false
	}
	c.waits, c.why, c.over, c.list = false, nil, make(chan struct{}), list
	c.view.Store(nil)
	c.said.Store(nil)
	c.began, c.hungFrom = time.Now(), time.Time{}
	c.heard.Store(int64(time.Since(c.born)))
	c.mu.Unlock()
	c.order(inputOf(list, until)) // which may kill the process, and so takes the lock
	return true
}

// order sends an order after the earlier ones, without waiting.
func (c *child) order(input []byte) {
	if !view.Offer(c.orders, input) { // it has not read several orders
		c.kill(ReasonProtocol, "does not read its orders")
	}
}

// sendOrders sends the orders until the process ends. It kills a process that does not read them.
func (c *child) sendOrders() {
	for {
		select {
		case <-c.end:
			return
		case input := <-c.orders:
			_ = c.conn.conn.SetWriteDeadline(time.Now().Add(c.silence()))
			if err := writeFrame(c.conn.conn, input, -1); errors.Is(err, os.ErrDeadlineExceeded) {
				c.kill(ReasonProtocol, fmt.Sprintf("cannot send an order: %v", err))
			} // after another error the process has ended, or is about to
		}
	}
}

// finish asks the session to end and leaves the process. It kills the process after grace.
func (c *child) finish(grace time.Duration) {
	c.mu.Lock()
	over := c.over
	c.why = cmp.Or(c.why, &ending{})
	c.mu.Unlock()
	c.order(nil)
	c.killUnless(over, grace)
}

// drainTime is how long the parent reads the output of a process that has ended: a process that it started may keep the
// pipe open.
const drainTime = 200 * time.Millisecond

// run reads the child's messages, reaps the child, and ends the processes that it has left behind.
func (c *child) run() {
	read := make(chan struct{})
	go func() {
		defer close(read)
		if err := c.receiveMessages(); err != nil {
			c.kill(ReasonProtocol, err.Error())
		}
	}()
	_ = c.cmd.Wait() // ProcessState has its result
	living.Delete(c.pid)
	_ = c.conn.conn.SetReadDeadline(time.Now().Add(drainTime))
	<-read
	c.conn.close()
	if n := endLeftovers(c.pid, c.mark); n < 0 {
		c.log.Warn("processes started by a child's library do not end")
	} else if n > 0 {
		c.log.Info("ended processes that a child's library had started", zap.Int("processes", n))
	}
	c.output.flush()
	st := c.cmd.ProcessState
	c.cpu.Store(int64(st.UserTime() + st.SystemTime()))
	c.mu.Lock()
	if c.why == nil {
		e := classifyExit(st, &c.output.tail)
		c.why = &e
	}
	if !c.waits {
		close(c.over)
	}
	c.waits = false
	c.mu.Unlock()
	close(c.end)
}

// receiveMessages handles messages until the channel ends. An error is a breach of its rules.
func (c *child) receiveMessages() error {
	for {
		m, err := c.conn.next()
		switch {
		case errors.Is(err, errChannel):
			return err
		case err != nil:
			return nil //nolint:nilerr // the child has ended or is about to
		}
		c.heard.Store(int64(time.Since(c.born)))
		if m.View != nil {
			err = c.onView(m.View)
		}
		if m.States != nil {
			err = errors.Join(err, c.onStates(m.States))
		}
		if m.Costs != nil {
			err = errors.Join(err, c.onCosts(m.Costs))
		}
		if fd := c.conn.takeFD(); fd >= 0 {
			_ = unix.Close(fd)
			err = errors.Join(err, fmt.Errorf("%w: a descriptor that no message needs", errChannel))
		}
		if err != nil {
			return err
		}
		view.Offer(c.news, struct{}{})
	}
}

func (c *child) onView(m viewMessage) error {
	c.mu.Lock()
	second, list := c.waits || c.view.Load() != nil, c.list
	c.mu.Unlock()
	if second {
		return fmt.Errorf("%w: a second view", errChannel)
	}
	if err := m.validate(); err != nil {
		return fmt.Errorf("%w: %w", errChannel, err)
	}
	region, err := ring.OpenRegion(c.conn.takeFD())
	if err == nil {
		err = region.Protect()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errChannel, err)
	}
	mem := region.Words()
	out := make([]*view.Source, 0, len(m))
	for i := range m {
		s := &m[i]
		n := ring.Words(s.Rows, len(s.Devices), len(s.Columns))
		if n > len(mem) {
			return fmt.Errorf("%w: the rings need more than the memory of %d words", errChannel, len(region.Words()))
		}
		r, err := ring.Attach(mem[:n:n], s.Rows, len(s.Devices), len(s.Columns))
		if err != nil {
			return fmt.Errorf("%w: %w", errChannel, err)
		}
		r.Keep(region)
		mem = mem[n:]
		s.Collector, s.Fields, s.Ring = c.o.Name, list, r
		out = append(out, &s.Source)
	}
	c.view.Store(&out)
	return nil
}

func (c *child) onStates(m *statesMessage) error {
	if len(m.Devices) > maxDevices || !isCause(m.Cause) {
		return fmt.Errorf("%w: states of %d devices, cause %.40q", errChannel, len(m.Devices), m.Cause)
	}
	all := make([]session.DeviceStatus, deviceCount(c.sources()))
	for i := range m.Devices {
		d := &m.Devices[i]
		if d.State > session.LastState || !isCause(d.Cause) || d.Device < 0 {
			return fmt.Errorf("%w: state %d, cause %.40q of device %d", errChannel, d.State, d.Cause, d.Device)
		}
		if d.Device < len(all) {
			all[d.Device] = session.DeviceStatus{State: d.State, Cause: d.Cause, Reason: printable(d.Reason)}
		}
	}
	if m.Ended {
		c.onEnded(m)
	} else {
		c.said.Store(&all)
	}
	return nil
}

// onEnded records the child's reason before it ends.
func (c *child) onEnded(m *statesMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Waits && !c.waits {
		c.waits = true
		close(c.over)
	}
	if c.why != nil {
		return
	}
	c.why = &ending{}
	if m.Cause == session.CauseNone {
		return
	}
	c.why.text = printable(m.Reason)
	c.why.cause = m.Cause
	if m.Cause == session.CauseOutdated {
		c.why.reason = ReasonOutdated
	}
}

// isCause reports whether a word can be a label: a short word of lower-case letters.
func isCause(c session.Cause) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }
	return len(c) <= 32 && !strings.ContainsFunc(string(c), other)
}

func (c *child) onCosts(costs *session.Costs) error {
	if sources, others := len(costs.Sources), len(costs.Calls)+len(costs.Implausible); sources > maxSources || others > maxSources {
		return fmt.Errorf("%w: costs of %d sources and %d calls and fields: at most %d", errChannel, sources, others, maxSources)
	}
	costs.Collector = c.o.Name
	c.spent.Store(costs)
	return nil
}

func deviceCount(sources []*view.Source) (n int) {
	for _, s := range sources {
		n += len(s.Devices)
	}
	return n
}

func (c *child) sources() []*view.Source {
	if p := c.view.Load(); p != nil {
		return *p
	}
	return nil
}

// states joins the child's last states with the timestamps of the newest rows.
func (c *child) states() []session.DeviceStatus {
	sources := c.sources()
	said := c.said.Load()
	out := make([]session.DeviceStatus, 0, deviceCount(sources))
	var row ring.Row
	for _, s := range sources {
		sampled := s.Latest(&row)
		for i := range s.Devices {
			d := session.DeviceStatus{Device: s.Devices[i]}
			if n := len(out); said != nil && n < len(*said) {
				d.State, d.Cause, d.Reason = (*said)[n].State, (*said)[n].Cause, (*said)[n].Reason
			}
			switch {
			case sampled && row.Stamps[i] != 0:
				d.LastSample = time.Unix(0, row.Stamps[i])
				if d.Cause == session.CauseStarting {
					d.State, d.Cause, d.Reason = session.Up, session.CauseNone, ""
				}
			case d.State == session.Up:
				d.State, d.Cause, d.Reason = session.Stalled, session.CauseStarting, "not sampled yet"
			}
			out = append(out, d)
		}
	}
	return out
}

func (c *child) costs() *session.Costs    { return c.spent.Load() }
func (c *child) changed() <-chan struct{} { return c.news }
func (c *child) done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// returned implements life: a child whose call hangs is killed.
func (c *child) returned(time.Time) bool { return true }

func (c *child) held() string {
	if c.stuck.Load() {
		return fmt.Sprintf("child process %d was killed and does not end: it is in the kernel", c.pid)
	}
	return heldBy(c.states())
}

// waiting reports whether the process waits for its next session.
func (c *child) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits && c.killed.IsZero()
}

func (c *child) ended() ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.why
}

func (c *child) logFields() []zap.Field {
	fields := []zap.Field{zap.Int("pid", c.pid)}
	select {
	case <-c.end:
		if text := c.output.tail.text(); text != "" {
			fields = append(fields, zap.String("stderr", text))
		}
	default:
	}
	return append(fields, zap.Duration("lived", time.Since(c.born).Round(time.Millisecond)))
}

// stop closes the parent's end of the channel, which asks the child to end, and kills it after grace.
func (c *child) stop(grace time.Duration) {
	c.mu.Lock()
	c.why = cmp.Or(c.why, &ending{})
	c.mu.Unlock()
	_ = c.conn.conn.CloseWrite()
	c.killUnless(c.end, grace)
}

// killUnless kills the process if done is not closed within grace.
func (c *child) killUnless(done <-chan struct{}, grace time.Duration) {
	go func() {
		select {
		case <-done:
		case <-c.end:
		case <-time.After(grace):
			c.log.Warn("killing a child that does not stop")
			c.kill(ReasonHung, "did not stop when asked to")
		}
	}()
}

// kill ends the child and its process group at once. The first reason counts.
func (c *child) kill(reason, text string) {
	c.mu.Lock()
	c.why = cmp.Or(c.why, &ending{reason: reason, text: text})
	if c.killed.IsZero() {
		c.killed = time.Now()
	}
	c.mu.Unlock()
	select {
	case <-c.end: // its process group ID may have been reused
	default:
		killGroup(c.pid)
	}
}

// check kills a child that hangs or uses too much memory.
func (c *child) check(now time.Time) {
	if now.Sub(c.checked) < checkEvery/2 {
		return
	}
	c.checked = now
	c.output.tick()
	c.mu.Lock()
	killed, why := c.killed, c.why
	c.mu.Unlock()
	if !killed.IsZero() && now.Sub(killed) > killGrace && !c.stuck.Swap(true) {
		c.log.Error("child does not end after SIGKILL; waiting for it before starting another one")
	}
	if p, err := procfs.NewProc(c.pid); err == nil && now.Sub(c.measured) > measureEvery-checkEvery/2 {
		c.measured = now // reading procfs never waits for the process, but costs more than the other checks
		if st, err := p.Stat(); err == nil {
			c.cost.Store(&usage{int64(st.ResidentMemory()), time.Duration(st.CPUTime() * float64(time.Second))})
		}
	}
	if !killed.IsZero() || why != nil {
		return
	}
	if used, limit := c.cost.Load().resident, c.o.MemoryLimit; limit > 0 && used > limit {
		c.mu.Lock()
		c.why = &ending{reason: ReasonMemory, text: fmt.Sprintf("took %d MiB, the limit is %d", used>>20, limit>>20)}
		c.mu.Unlock()
		c.stop(c.o.StopTimeout)
		return
	}
	if silent := now.Sub(c.born) - time.Duration(c.heard.Load()); silent > c.silence() {
		c.kill(ReasonHung, fmt.Sprintf("silent for %v", silent.Round(100*time.Millisecond)))
		return
	}
	c.checkHang(now)
}

// silence is how long a child, which reports every 3 s, may be silent.
func (c *child) silence() time.Duration { return max(10*time.Second, 2*c.o.Session.Deadline) }

// checkHang kills a child when all its GPUs hang, or all its devices if it has no GPU. It tolerates a single hung GPU,
// because a kill would stop the other GPUs too.
func (c *child) checkHang(now time.Time) {
	all := c.states()
	if len(all) == 0 {
		if limit := session.OpenTimeout + c.o.Session.Deadline; now.Sub(c.began) > limit {
			c.kill(ReasonHung, fmt.Sprintf("has not opened its library after %v", limit))
		}
		return
	}
	gpu := func(d session.DeviceStatus) bool { return d.Device.Level <= field.ComputeInstance }
	gpus := slices.ContainsFunc(all, gpu)
	answers := func(d session.DeviceStatus) bool { return !d.Cause.Hangs() || d.Cause == session.CauseOneCall }
	if slices.ContainsFunc(all, func(d session.DeviceStatus) bool { return gpu(d) == gpus && answers(d) }) {
		c.hungFrom = time.Time{}
		return
	}
	if c.hungFrom.IsZero() {
		c.hungFrom = now
	}
	if now.Sub(c.hungFrom) > 2*c.o.Session.Deadline {
		c.kill(ReasonHung, "no library call returns")
	}
}

// classifyExit returns the reason for an unexpected exit of the child.
func classifyExit(st *os.ProcessState, words *stderrTail) ending {
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		switch s := ws.Signal(); s {
		case syscall.SIGABRT:
			return ending{reason: ReasonAbort, text: words.aborted(len(words.lines))}
		case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGSYS, syscall.SIGTRAP:
			return ending{reason: ReasonCrash, text: fmt.Sprintf("crashed: %s (%v)", unix.SignalName(s), s)}
		default:
			return ending{reason: ReasonSignal, text: fmt.Sprintf("ended by %s (%v)", unix.SignalName(s), s)}
		}
	}
	if reason, text := words.explain(); reason != "" && st.ExitCode() != 0 {
		return ending{reason: reason, text: text}
	}
	text := fmt.Sprintf("exited with code %d", st.ExitCode())
	if last := words.last(len(words.lines)); last != "" {
		text += ": " + last
	}
	return ending{reason: ReasonExit, text: text}
}
