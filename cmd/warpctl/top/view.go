package top

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
)

// View draws the screen.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.frame(), "\n"))
	v.AltScreen = true
	return v
}

// Text styles. Selected lines and states also have marks or words, so the screen is readable without styles.
const (
	bold    = "\x1b[1m"
	alarm   = "\x1b[31m"
	reverse = "\x1b[7m"
	off     = "\x1b[m"
)

func style(code, s string) string {
	if code == "" {
		return s
	}
	return code + s + off
}

// frame returns the screen: at most height lines of width cells.
func (m *model) frame() []string {
	if m.width < 1 || m.height < 1 {
		return nil
	}
	var head, foot []string
	if m.height >= 4 {
		head = append(head, style(bold, fit(m.title(), m.width, false)))
	}
	if text := m.second(); m.height >= 10 && text != "" {
		head = append(head, fit(text, m.width, false))
	}
	if m.height >= 6 {
		foot = append(foot, fit(m.keys(), m.width, false))
	}
	var body []string
	height := m.height - len(head) - len(foot)
	switch m.screen {
	case helpScreen:
		body = m.scrolled(help(), height)
	case detailScreen:
		body = m.detail(height)
	default:
		body = m.table(height)
	}
	for len(body) < height {
		body = append(body, "")
	}
	return append(append(head, body...), foot...)
}

// table draws the list with its selected line.
func (m *model) table(height int) (out []string) {
	l := m.list()
	if len(l.lines) == 0 {
		return []string{fit(m.nothing(), m.width, false)}
	}
	if height >= 3 {
		out = append(out, style(bold, fit(l.head, m.width, false)))
		height--
	}
	about := height >= 4 && l.about != ""
	if about {
		height--
	}
	at := m.cursor(l.ids)
	first := min(max(at-height/2, 0), max(len(l.lines)-height, 0))
	for i := first; i < min(first+height, len(l.lines)); i++ {
		text, code := "  "+l.lines[i], ""
		if m.bad(l.keys[i]) {
			code = alarm
		}
		if i == at {
			text, code = "> "+l.lines[i], reverse
		}
		out = append(out, style(code, fit(text, m.width, false)))
	}
	if about {
		for len(l.lines)-first < height && height > 0 { // fill up to the bottom
			out = append(out, "")
			height--
		}
		out = append(out, fit(l.about, m.width, false))
	}
	return out
}

// bad reports whether a device or node has a problem.
func (m *model) bad(k key) bool {
	s := m.states[k.node]
	if m.screen == nodesScreen {
		return s.trouble() != ""
	}
	r := m.row(k)
	if r == nil {
		return !s.silent.IsZero()
	}
	state, _ := stateOf(m.states, r)
	return state != "up"
}

// nothing explains why the table is empty.
func (m *model) nothing() string {
	if m.filtered() != "" {
		return "nothing matches the filter " + m.filtered() + " (esc removes it)"
	}
	for _, s := range m.states {
		switch {
		case !s.silent.IsZero():
			return "no answer since " + s.silent.Format(time.TimeOnly) + ": " + s.err
		case s.devices == nil:
			return "asking " + s.name
		case m.screen == devicesScreen && s.trouble() != "":
			return s.trouble()
		}
	}
	if m.screen == processesScreen {
		return "no process is known; exporters name them with --web-page=full"
	}
	return "nothing to show"
}

// title returns the title line: the node or the number of nodes, and their problems.
func (m *model) title() string {
	var gpus, lost, silent, simulated int
	for i := range m.rows {
		if r := &m.rows[i]; r.Kind == "gpu" && (m.only < 0 || m.only == r.node) {
			gpus++
			if r.State != "up" {
				lost++
			}
		}
	}
	for _, s := range m.states {
		if !s.silent.IsZero() {
			silent++
		}
		if s.simulated() != "" {
			simulated++
		}
	}
	name := fmt.Sprintf("%d nodes", len(m.states))
	switch {
	case m.screen == detailScreen:
		name = m.states[m.device.node].name
	case m.only >= 0:
		name = m.states[m.only].name
	case len(m.states) == 1:
		name = m.states[0].name
	}
	parts := []string{name, config.Counted(gpus, "GPU")}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%d not up", lost))
	}
	if len(m.states) > 1 && silent > 0 {
		parts = append(parts, fmt.Sprintf("%d silent", silent))
	}
	if len(m.states) == 1 {
		parts = append(parts, m.states[0].condition())
	}
	left := "warpctl top  "
	switch {
	case simulated == len(m.states):
		left = "warpctl top (simulated)  "
	case simulated > 0:
		left = fmt.Sprintf("warpctl top (%d simulated)  ", simulated)
	}
	left += strings.Join(parts, ", ")
	right := m.now.Format(time.TimeOnly)
	if m.frozen {
		right = "frozen at " + right
	}
	if len(left)+len(right)+1 > m.width {
		return left
	}
	return fit(left, m.width-len(right), false) + right
}

// second returns the line below the title.
func (m *model) second() string {
	if m.typing {
		return "filter: " + m.filtered() + "_"
	}
	var parts []string
	if m.filtered() != "" {
		parts = append(parts, "filter: "+m.filtered())
	}
	if s := m.sort[m.screen]; s != "" {
		parts = append(parts, "sorted by "+s)
	}
	if m.reverse {
		parts = append(parts, "reversed")
	}
	return strings.Join(parts, "   ")
}

// keys returns the keys of this screen.
func (m *model) keys() string {
	switch {
	case m.typing:
		return "enter: keep the filter   esc: remove it"
	case m.screen == helpScreen:
		return "esc: back   q: quit"
	case m.screen == detailScreen:
		return "esc back  ? help  up/down fields  / filter  s sort  +/- span  space freeze"
	}
	return "q quit  ? help  enter more  / filter  s sort  p processes  space freeze"
}

// help explains the keys and the marks.
func help() []string {
	return strings.Split(strings.TrimSpace(`
up, down, k, j   choose a line; page up, page down, home, end
enter, right     more of the line: a node's GPUs, a GPU's details
esc, left        back
g  p  n          GPUs; processes; nodes
a                links, switches, CPUs and cores, too (or no longer)
s  S             sort by the next column, by the one before
r                the other way round
/                filter: lines that have all these words; esc removes it
space            freeze, continue
+  -             span of the plots: 1, 5, 15 minutes
q                quit

-                not known, or read too long ago; a GPU's details say why
>                in front of a sum: of some GPUs the value is not known
silent           the node does not answer; its values are not shown
stalled          the driver does not answer for the GPU
lost, absent     the GPU has fallen off the bus; it is no longer found
released         an operator has released it
TENSOR, DRAM     share of time in which the tensor cores, the memory were busy
MEMORY           in use, of all, in GiB
HELD DOWN BY     why clocks are lower than they could be
`), "\n")
}

// scrolled returns the visible part of the lines.
func (m *model) scrolled(lines []string, height int) (out []string) {
	first := min(m.top, max(len(lines)-height, 0))
	for _, l := range lines[first:min(first+height, len(lines))] {
		out = append(out, fit(l, m.width, false))
	}
	return out
}

// most returns the maximum scroll position.
func (m *model) most() int {
	if m.screen == helpScreen {
		return max(len(help())-m.height+3, 0)
	}
	return max(len(m.list().lines)-1, 0)
}

// page returns the distance of a page key.
func (m *model) page() int { return max(m.height-6, 1) }

// plots lists the plots of the detail view.
var plots = []struct {
	quantity
	name string
	top  quantity // upper end of the scale; quantities means 100
	unit float64  // factor for the text
	text string
}{
	{util, "UTIL", quantities, 1, "%"},
	{tensor, "TENSOR", quantities, 1, "%"},
	{dram, "DRAM", quantities, 1, "%"},
	{memoryUsed, "MEMORY", memoryTotal, 1 << 30, "G"},
	{power, "POWER", powerLimit, 1, "W"},
	{temperature, "TEMP", quantities, 1, "C"},
	{smClock, "CLOCK", quantities, 1, "MHz"},
}

const plotLabel = 17 // cells before a plot

func (m *model) plotWidth() int { return max(min(m.width-plotLabel, 240), 0) }

// detail draws a device with its plots and fields.
func (m *model) detail(height int) (out []string) {
	r := m.row(m.device)
	if r == nil {
		return []string{fit("the device is gone (esc goes back)", m.width, false)}
	}
	add := func(s string) { out = append(out, fit(s, m.width, false)) }
	name := join(" ", "GPU "+r.number(), r.Model)
	if r.part() {
		name = r.number()
	}
	if r.Simulated && !strings.Contains(name, "(simulated)") {
		name += " (simulated)"
	}
	add(name)
	state := m.about(r) + "   (plots: the last " + short(spans[m.span].Seconds()) + ")"
	if m.bad(r.key()) {
		out = append(out, style(alarm, fit(state, m.width, false)))
	} else {
		add(state)
	}
	if height >= 12 {
		uuid, profile := r.UUID, ""
		if r.Instance != nil {
			uuid, profile = cmp.Or(r.Instance.UUID, uuid), r.Instance.Profile
		}
		add(join("  ", uuid, profile, r.PCIBusID, r.Node, "through "+r.Collector))
		add("used by: " + r.users() + "   held down by: " + r.heldDown())
	}
	lines := max(min((height-len(out)-6)/len(plots), 4), 1)
	for _, p := range plots {
		if height-len(out)-lines < 3 { // lines for fields
			break
		}
		out = append(out, m.plot(r, p.quantity, p.name, p.top, p.unit, p.text, lines)...)
	}
	if d := m.details(); d != nil && len(d.events) > 0 && height-len(out) >= 8 {
		for i := range min(len(d.events), max((height-len(out)-6)/2, 1)) {
			add(event(&d.events[i]))
		}
	}
	l := m.list()
	if height-len(out) < 2 {
		return out[:min(len(out), height)]
	}
	if len(l.lines) == 0 {
		add("  " + m.noFields())
		return out
	}
	out = append(out, style(bold, fit(l.head, m.width, false)))
	first := min(m.top, max(len(l.lines)-(height-len(out)), 0))
	for _, text := range l.lines[first:min(first+height-len(out), len(l.lines))] {
		add("  " + text)
	}
	return out
}

func (m *model) noFields() string {
	switch {
	case m.filtered() != "":
		return "no field matches the filter " + m.filtered()
	case m.details() == nil:
		return "asking for the fields"
	}
	return "no field is read of this device"
}

func event(e *apiv1.Event) string {
	return join("  ", e.Time.Local().Format(time.TimeOnly), strings.ReplaceAll(e.Kind, "_", " "), e.Text)
}

// plot draws one quantity of a device from the node's history.
func (m *model) plot(r *row, q quantity, name string, top quantity, unit float64, text string, lines int) []string {
	n, span := m.plotWidth(), spans[m.span]
	var kept *apiv1.Samples
	if d := m.details(); d != nil {
		kept = d.samples[q]
	}
	points := pointsOf(kept, r.factor[q], span, n)
	high := 100.0
	if top != quantities {
		high = r.of[top]
	}
	for _, p := range points {
		if p > high || math.IsNaN(high) {
			high = p
		}
	}
	drawn := plot(points, 0, high, lines)
	label := fit(name, 7, false) + fit(number(r.of[q]/unit, 0, text), 8, true) + "  "
	for i := range drawn {
		if i == lines-1 {
			drawn[i] = label + drawn[i]
		} else {
			drawn[i] = strings.Repeat(" ", plotLabel) + drawn[i]
		}
		drawn[i] = fit(drawn[i], m.width, false)
	}
	return drawn
}
