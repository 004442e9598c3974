// Package browser drives a headless Chromium in tests, over the DevTools protocol on two
// pipes, so that it needs no port and no library.
package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// patience is how long an answer of the browser, or a condition, may take.
const patience = 60 * time.Second

// Browser is a running Chromium. Its methods may be called from any goroutine; one at a time talks to the browser.
type Browser struct {
	mu    sync.Mutex
	in    *os.File // the browser's input
	out   *os.File // and output
	lines *bufio.Reader
	next  int
	pages map[string]*Page // by session ID
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Open starts a Chromium that ends with the test. It skips the test if there is none, unless WARPGAUGE_REQUIRE names
// chromium. CHROMIUM sets another program.
func Open(tb testing.TB) *Browser {
	tb.Helper()
	program := os.Getenv("CHROMIUM")
	if program == "" {
		program = programtest.Find(tb, "chromium")
	}
	theirs, in, err := os.Pipe()
	testkit.Must(tb, err)
	out, theirOut, err := os.Pipe()
	testkit.Must(tb, err)
	cmd := exec.CommandContext(tb.Context(), program, "--headless=new", //nolint:gosec // a program from PATH or CHROMIUM
		"--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
		"--disable-sync", "--hide-scrollbars", "--mute-audio", "--lang=en-US", "--font-render-hinting=none",
		// Frames and timers run as if the window were in front.
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
		"--js-flags=--expose-gc", "--enable-precise-memory-info", "--user-data-dir="+tb.TempDir())
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.ExtraFiles = []*os.File{theirs, theirOut} // descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	testkit.Must(tb, cmd.Start())
	_, _ = theirs.Close(), theirOut.Close() // the browser has its own copies
	tb.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_, _ = in.Close(), out.Close() // the browser is gone
	})
	return &Browser{in: in, out: out, lines: bufio.NewReaderSize(out, 1<<20), pages: map[string]*Page{}}
}

// call sends a command and waits for the answer. Pages record the events before it.
func (b *Browser) call(session, method string, params, result any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next++
	text, err := json.Marshal(message{ID: b.next, Session: session, Method: method, Params: params})
	if err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	if err == nil {
		err = b.out.SetReadDeadline(time.Now().Add(patience))
	}
	for err == nil {
		var line, event []byte
		if line, err = b.lines.ReadBytes(0); err != nil {
			break
		}
		m := message{Params: (*json.RawMessage)(&event)}
		switch err = json.Unmarshal(line[:len(line)-1], &m); {
		case err != nil:
		case m.ID == b.next && m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case m.ID == b.next && result == nil:
			return nil
		case m.ID == b.next:
			return json.Unmarshal(m.Result, result)
		case b.pages[m.Session] != nil:
			b.pages[m.Session].handleEvent(m.Method, event)
		}
	}
	return fmt.Errorf("%s: no answer of the browser: %w", method, err)
}

// Page is a tab. It records everything that should not happen in it: see Problems.
type Page struct {
	tb      testing.TB
	b       *Browser
	session string

	problems, requests []string // under b.mu
}

// Page opens a tab of a size in CSS pixels, in its own browser context.
func (b *Browser) Page(tb testing.TB, width, height int) *Page {
	tb.Helper()
	var made struct{ TargetID, BrowserContextID, SessionID string }
	for _, step := range []struct {
		method string
		params func() map[string]any
	}{
		{"Target.createBrowserContext", func() map[string]any { return map[string]any{"disposeOnDetach": true} }},
		{"Target.createTarget", func() map[string]any {
			return map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}
		}},
		{"Target.attachToTarget", func() map[string]any { return map[string]any{"targetId": made.TargetID, "flatten": true} }},
	} {
		testkit.Must(tb, b.call("", step.method, step.params(), &made))
	}
	p := &Page{tb: tb, b: b, session: made.SessionID}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		p.call(domain+".enable", nil, nil)
	}
	p.Resize(width, height)
	tb.Cleanup(func() { _ = b.call("", "Target.closeTarget", map[string]any{"targetId": made.TargetID}, nil) })
	return p
}

// call sends a command and fails the test if the browser refuses it.
func (p *Page) call(method string, params, result any) {
	p.tb.Helper()
	testkit.Must(p.tb, p.b.call(p.session, method, params, result))
}

// Resize gives the tab another size.
func (p *Page) Resize(width, height int) {
	p.tb.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// Dark sets the system's colour scheme that the page sees.
func (p *Page) Dark(dark bool) {
	p.tb.Helper()
	value := "light"
	if dark {
		value = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}}}, nil)
}

// handleEvent records a problem that the browser reports. The caller holds b.mu.
func (p *Page) handleEvent(method string, event []byte) {
	var e struct {
		Request struct{ URL string }
		Entry   struct{ Level, Source, Text, URL string }
		Issue   json.RawMessage
		Type    string
		Args    []struct {
			Value       any
			Description string
		}
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(event, &e) != nil {
		return
	}
	switch method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			p.problems = append(p.problems, fmt.Sprintf("console %s: %v", e.Type, e.Args))
		}
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.problems = append(p.problems, fmt.Sprintf("log %s of %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case "Audits.issueAdded":
		p.problems = append(p.problems, "issue: "+string(e.Issue)) // includes violations of the Content-Security-Policy
	}
}

// Problems returns the problems since the last call: exceptions, errors and warnings on the console, violations of
// the Content-Security-Policy, requests to other origins.
func (p *Page) Problems(origin string) []string {
	_ = p.eval("0", nil) // what came before its answer has been read then
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	out := p.problems
	for _, url := range p.requests {
		if !strings.HasPrefix(url, origin) && !strings.HasPrefix(url, "data:") {
			out = append(out, "request to "+url)
		}
	}
	p.problems, p.requests = nil, nil
	return out
}

// Open loads a page and waits until it is loaded.
func (p *Page) Open(url string) {
	p.tb.Helper()
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	p.Wait(`location.href !== 'about:blank' && document.readyState === 'complete'`)
}

// Eval evaluates an expression, awaits a promise, and stores the value in result unless result is nil.
func (p *Page) Eval(expression string, result any) {
	p.tb.Helper()
	testkit.Must(p.tb, p.eval(expression, result))
}

func (p *Page) eval(expression string, result any) error {
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := p.b.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true,
	}, &answer); err != nil {
		return err
	}
	if d := answer.ExceptionDetails; d != nil {
		return fmt.Errorf("%s: %s %s", expression, d.Text, d.Exception.Description)
	}
	if result == nil || answer.Result.Value == nil {
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Wait waits until an expression is true.
func (p *Page) Wait(condition string) {
	p.tb.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var ok bool
		err := p.eval("Boolean("+condition+")", &ok)
		if ok {
			return
		}
		if time.Now().After(end) {
			p.tb.Fatalf("not true after %v: %s (%v); problems: %q", patience, condition, err, p.Problems(""))
		}
	}
}

// Key presses a key, named as in KeyboardEvent.key.
func (p *Page) Key(key string) {
	p.tb.Helper()
	params := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}[key]}
	if len(key) == 1 {
		params["text"] = key
	}
	if key == "Enter" {
		params["text"] = "\r"
	}
	p.call("Input.dispatchKeyEvent", params, nil)
	params["type"] = "keyUp"
	p.call("Input.dispatchKeyEvent", params, nil)
}

// Mouse sends a mouse event at a point: mouseMoved, mousePressed or mouseReleased.
func (p *Page) Mouse(event string, x, y float64) {
	p.tb.Helper()
	params := map[string]any{"type": event, "x": x, "y": y, "button": "left", "clickCount": 1}
	if event == "mouseMoved" {
		params["button"] = "none"
	}
	p.call("Input.dispatchMouseEvent", params, nil)
}

// Screenshot writes the visible part of the page as WebP.
func (p *Page) Screenshot(file string) {
	p.tb.Helper()
	var shot struct{ Data []byte }
	p.call("Page.captureScreenshot", map[string]any{"format": "webp", "quality": 72}, &shot)
	testkit.Must(p.tb, os.WriteFile(file, shot.Data, 0o644)) //nolint:gosec // anyone may read the picture
}

// Node is an element as assistive technology sees it.
type Node struct {
	Role, Name string
	Ignored    bool
}

// Accessible returns the page's accessibility tree as a list.
func (p *Page) Accessible() []Node {
	p.tb.Helper()
	type value struct {
		Value any `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name value
		}
	}
	p.call("Accessibility.getFullAXTree", nil, &tree)
	var out []Node
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		name, _ := n.Name.Value.(string)
		out = append(out, Node{Role: role, Name: name, Ignored: n.Ignored})
	}
	return out
}

// Heap collects garbage and returns the size of the remaining JavaScript objects in bytes.
func (p *Page) Heap() int64 {
	p.tb.Helper()
	p.call("HeapProfiler.collectGarbage", nil, nil)
	var usage struct{ UsedSize float64 }
	p.call("Runtime.getHeapUsage", nil, &usage)
	return int64(usage.UsedSize)
}
