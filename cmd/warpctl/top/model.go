package top

import (
	"math"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"warpgauge/extensions/live/apiv1"
)

// screen is one of the views.
type screen uint8

const (
	nodesScreen screen = iota
	devicesScreen
	processesScreen
	detailScreen
	helpScreen
	screens
)

// spans lists the time spans of plots.
var spans = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// refresh is how often the screen shows new answers.
const refresh = 250 * time.Millisecond

type tick time.Time

// source supplies a model with answers. fleet implements it.
type source interface {
	states() []*state
	look(*look)
}

// model is the state of the terminal view. Update and View only change and draw it.
type model struct {
	from source

	now           time.Time
	states        []*state
	rows          []row // of all nodes; without values if the node is silent
	width, height int

	screen  screen
	back    []screen
	only    int // node whose devices and processes are listed, or -1 for all
	chosen  [screens]string
	at      [screens]int // position of the selected line, in case it disappears
	top     int          // first visible field of the details
	device  key          // device in the details
	sort    [screens]string
	reverse bool
	filter  [screens]string
	typing  bool
	all     bool // also devices other than GPUs and instances
	frozen  bool
	span    int
}

func newModel(from source) *model {
	m := &model{from: from, only: -1, width: 80, height: 24}
	m.capture(time.Now())
	if len(m.states) == 1 {
		m.screen = devicesScreen
	}
	return m
}

// Init starts the ticks.
func (m *model) Init() tea.Cmd { return next() }

func next() tea.Cmd { return tea.Tick(refresh, func(t time.Time) tea.Msg { return tick(t) }) }

// Update changes the model after a key, a new size or a tick.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tick:
		m.capture(time.Time(msg))
		return m, next()
	case tea.KeyPressMsg:
		if m.typing {
			m.typed(msg)
			return m, nil
		}
		return m, m.pressed(msg.String())
	}
	return m, nil
}

// capture copies the latest answers, unless the screen is frozen.
func (m *model) capture(now time.Time) {
	if m.frozen {
		return
	}
	m.now, m.states, m.rows = now, m.from.states(), m.rows[:0]
	for i, s := range m.states {
		for j := range s.rows {
			r := s.rows[j]
			r.node = i
			if !s.silent.IsZero() {
				r.reset()
			}
			m.rows = append(m.rows, r)
		}
	}
	m.lookAgain()
}

// lookAgain requests the details of the shown device.
func (m *model) lookAgain() {
	r := m.row(m.device)
	if m.screen != detailScreen || r == nil {
		m.from.look(nil)
		return
	}
	l := &look{key: m.device, span: spans[m.span], points: m.plotWidth(), plots: map[quantity]string{}}
	for _, p := range plots {
		if r.field[p.quantity] != "" {
			l.plots[p.quantity] = r.field[p.quantity]
		}
	}
	m.from.look(l)
}

// row returns a device's row, or nil if the device is gone.
func (m *model) row(k key) *row {
	for i := range m.rows {
		if m.rows[i].key() == k {
			return &m.rows[i]
		}
	}
	return nil
}

// typed edits the filter.
func (m *model) typed(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc", "alt+esc", "ctrl+c":
		m.typing = false
		m.setFilter("")
	case "backspace":
		if r := []rune(m.filtered()); len(r) > 0 {
			m.setFilter(string(r[:len(r)-1]))
		}
	case "ctrl+u":
		m.setFilter("")
	default:
		m.setFilter(m.filtered() + k.Text)
	}
}

// filtered returns the filter of the screen.
func (m *model) filtered() string { return m.filter[m.screen] }

func (m *model) setFilter(text string) { m.filter[m.screen] = clean(text) }

// pressed performs the action of a key.
func (m *model) pressed(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "esc", "alt+esc", "backspace", "left": // alt+esc: escape pressed twice
		m.leave()
	case "enter", "right":
		m.open()
	case "n":
		m.only = -1
		m.enter(nodesScreen)
	case "g":
		m.enter(devicesScreen)
	case "p":
		m.enter(processesScreen)
	case "?", "h", "f1":
		m.enter(helpScreen)
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.page())
	case "pgdown", "ctrl+f":
		m.move(m.page())
	case "home":
		m.move(math.MinInt32)
	case "end", "G":
		m.move(math.MaxInt32)
	case "s":
		m.resort(1)
	case "S":
		m.resort(-1)
	case "r":
		m.reverse = !m.reverse
	case "/":
		m.typing = true
	case "a":
		m.all = !m.all
	case "space":
		m.frozen = !m.frozen
	case "+", "=":
		m.span = min(m.span+1, len(spans)-1)
	case "-":
		m.span = max(m.span-1, 0)
	}
	m.lookAgain()
	return nil
}

// enter switches to another screen and remembers this one, unless the other was open before.
func (m *model) enter(s screen) {
	if s == m.screen {
		return
	}
	if i := slices.Index(m.back, s); i >= 0 {
		m.back = m.back[:i]
	} else {
		m.back = append(m.back, m.screen)
	}
	m.screen, m.top = s, 0
}

// leave clears the filter; without a filter it goes back.
func (m *model) leave() {
	if m.filtered() != "" {
		m.setFilter("")
		return
	}
	n := len(m.back)
	if n == 0 {
		return
	}
	m.screen, m.back, m.top = m.back[n-1], m.back[:n-1], 0
	if m.screen == nodesScreen {
		m.only = -1
	}
}

// open opens the selected line.
func (m *model) open() {
	l := m.list()
	if m.screen > processesScreen || len(l.ids) == 0 {
		return
	}
	at := m.cursor(l.ids)
	if m.screen == nodesScreen {
		m.only = l.keys[at].node
		m.enter(devicesScreen)
		return
	}
	m.device = l.keys[at]
	m.enter(detailScreen)
}

// cursor returns the index of the selected line. If the line is gone, it selects the one at its position.
func (m *model) cursor(ids []string) int {
	if i := slices.Index(ids, m.chosen[m.screen]); i >= 0 && m.chosen[m.screen] != "" {
		return i
	}
	return max(min(m.at[m.screen], len(ids)-1), 0)
}

func (m *model) move(by int) {
	if m.screen >= detailScreen {
		m.top = max(m.top+by, 0)
		if by == math.MaxInt32 {
			m.top = m.most()
		}
		m.top = min(m.top, m.most())
		return
	}
	ids := m.list().ids
	if len(ids) == 0 {
		return
	}
	at := min(max(m.cursor(ids)+by, 0), len(ids)-1)
	m.at[m.screen], m.chosen[m.screen] = at, ids[at]
}

// resort sorts by the next column; after the last, the list is unsorted.
func (m *model) resort(by int) {
	titles := append([]string{""}, m.list().titles...)
	at := max(slices.Index(titles, m.sort[m.screen]), 0)
	m.sort[m.screen] = titles[(at+by+len(titles))%len(titles)]
}

// listing is the table of a screen, in order.
type listing struct {
	ids    []string // identify the lines' contents
	keys   []key    // devices of the lines
	lines  []string
	head   string
	titles []string // column titles
	about  string   // description of the selected line
}

// list returns the table of the screen.
func (m *model) list() listing {
	switch m.screen {
	case nodesScreen:
		var items []nodeRow
		for i, s := range m.states {
			if n := newNodeRow(i, s); matches(m.filtered(), s.name, n.condition(), n.trouble(), n.simulated()) {
				items = append(items, n)
			}
		}
		l := listOf(m, nodeColumns(), items, func(n *nodeRow) (string, key) { return m.states[n.index].name, key{node: n.index} })
		if len(items) > 0 {
			s := m.states[l.keys[m.cursor(l.ids)].node]
			l.about = join(": ", s.name+s.simulated()+" "+s.condition(), s.trouble())
		}
		return l
	case processesScreen:
		var items []process
		for i := range m.rows {
			r := &m.rows[i]
			for j := range r.Processes {
				p := &r.Processes[j]
				if m.listed(r) && matches(m.filtered(), m.states[r.node].name, p.Name, p.Pod, p.Job, "gpu "+r.number()) {
					items = append(items, process{p, r})
				}
			}
		}
		return listOf(m, processColumns(m.states), items, func(p *process) (string, key) {
			return p.on.ID + " " + exact(float64(p.PID)), p.on.key()
		})
	case detailScreen:
		var items []apiv1.Field
		if d := m.details(); d != nil {
			for i := range d.fields {
				f := d.fields[i]
				if matches(m.filtered(), fieldName(&f), f.Help) {
					items = append(items, f)
				}
			}
		}
		return listOf(m, fieldColumns(), items, func(f *apiv1.Field) (string, key) { return fieldName(f), m.device })
	}
	var items []row
	for i := range m.rows {
		r := &m.rows[i]
		state, why := stateOf(m.states, r)
		if m.listed(r) && matches(m.filtered(), m.states[r.node].name, "gpu "+r.number(), r.Model, r.model(), state, r.users(), r.UUID, r.PCIBusID, why) {
			items = append(items, *r)
		}
	}
	l := listOf(m, deviceColumns(m.states), items, func(r *row) (string, key) { return r.ID, r.key() })
	if len(items) > 0 {
		l.about = m.about(m.row(l.keys[m.cursor(l.ids)]))
	}
	return l
}

// listed reports whether the device passes the current selection.
func (m *model) listed(r *row) bool {
	return (m.all || !r.part()) && (m.only < 0 || r.node == m.only)
}

// about explains the state of a device.
func (m *model) about(r *row) string {
	if s := m.states[r.node]; !s.silent.IsZero() {
		return join(": ", s.name+" has not answered since "+s.silent.Format(time.TimeOnly), s.err)
	}
	out := "GPU " + r.number()
	if r.part() {
		out = r.number()
	}
	state, why := stateOf(m.states, r)
	out += " is " + state
	if r.State != "up" && r.LastSample != nil {
		out += ", last sampled " + short(m.now.Sub(*r.LastSample).Seconds()) + " ago"
	}
	return join(": ", out, why)
}

// details returns the details of the shown device, or nil until they arrive.
func (m *model) details() *details {
	if d := m.states[m.device.node].details; d != nil && d.key == m.device {
		return d
	}
	return nil
}

func listOf[T any](m *model, columns []column[T], items []T, id func(*T) (string, key)) (l listing) {
	order(items, columns, m.sort[m.screen], m.reverse)
	w := widths(columns, m.width-2)
	for i := range columns {
		if w[i] > 0 {
			l.titles = append(l.titles, columns[i].title)
		}
	}
	l.head = "  " + line(columns, w, func(c *column[T]) string { return c.title })
	for i := range items {
		text, k := id(&items[i])
		l.ids = append(l.ids, exact(float64(k.node))+" "+text)
		l.keys = append(l.keys, k)
		l.lines = append(l.lines, line(columns, w, func(c *column[T]) string { return c.text(&items[i]) }))
	}
	return l
}

// join joins the non-empty texts.
func join(with string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), with)
}
