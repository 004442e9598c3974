package top

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
)

// column is a column in a table of T.
type column[T any] struct {
	title string
	width int  // minimum
	grow  bool // it gets the remaining width
	right bool
	rank  int // columns with the highest rank disappear first in a narrow window; 0 never does
	text  func(*T) string
	value func(*T) float64 // sort key, largest first; nil sorts by text
}

// widths returns the columns' widths for a line width; 0 hides a column.
func widths[T any](columns []column[T], width int) []int {
	out, byRank := make([]int, len(columns)), make([]int, len(columns))
	left := width + 1
	for i, c := range columns {
		out[i], byRank[i] = c.width, i
		left -= c.width + 1
	}
	slices.SortFunc(byRank, func(a, b int) int { return cmp.Or(columns[b].rank-columns[a].rank, b-a) })
	for _, i := range byRank {
		if left < 0 && columns[i].rank > 0 {
			left += out[i] + 1
			out[i] = 0
		}
	}
	growing := slices.DeleteFunc(slices.Sorted(slices.Values(byRank)), func(i int) bool { return out[i] == 0 || !columns[i].grow })
	for n, i := range growing {
		share := max(left, 0) / (len(growing) - n)
		out[i] += share
		left -= share
	}
	return out
}

// line formats a row; text returns the text of a column.
func line[T any](columns []column[T], w []int, text func(*column[T]) string) string {
	var b strings.Builder
	for i := range columns {
		if w[i] == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(fit(text(&columns[i]), w[i], columns[i].right))
	}
	return b.String()
}

// order sorts items in place by the column with a title; "" keeps their order. Unknown values come last.
func order[T any](items []T, columns []column[T], title string, reverse bool) {
	at := slices.IndexFunc(columns, func(c column[T]) bool { return c.title == title })
	if at < 0 {
		if reverse {
			slices.Reverse(items)
		}
		return
	}
	c := &columns[at]
	sign := 1
	if reverse {
		sign = -1
	}
	slices.SortStableFunc(items, func(a, b T) int {
		if c.value == nil {
			return sign * cmp.Compare(c.text(&a), c.text(&b))
		}
		x, y := c.value(&a), c.value(&b)
		if math.IsNaN(x) || math.IsNaN(y) {
			return cmp.Compare(y, x) // NaN is the smallest value
		}
		return sign * cmp.Compare(y, x)
	})
}

// matches reports whether each word of the filter is in one of the texts.
func matches(filter string, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(filter)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// The tables. Columns of devices are narrow, so that the important ones fit into 80 cells.

func deviceColumns(states []*state) []column[row] {
	of := func(q quantity) func(*row) float64 { return func(r *row) float64 { return r.of[q] } }
	whole := func(q quantity, unit string) func(*row) string {
		return func(r *row) string { return number(r.of[q], 0, unit) }
	}
	state := func(r *row) string {
		word, _ := stateOf(states, r)
		return word
	}
	out := []column[row]{
		{title: "GPU", width: 4, text: (*row).number},
		{title: "MODEL", width: 9, grow: true, rank: 8, text: (*row).model},
		{title: "STATE", width: 8, text: state},
		{title: "UTIL", width: 5, right: true, text: whole(util, "%"), value: of(util)},
		{title: "TENSOR", width: 6, right: true, rank: 4, text: whole(tensor, "%"), value: of(tensor)},
		{title: "DRAM", width: 5, right: true, rank: 9, text: whole(dram, "%"), value: of(dram)},
		{title: "MEMORY", width: 9, right: true, rank: 1, text: memoryText, value: of(memoryUsed)},
		{title: "POWER", width: 8, right: true, rank: 2, text: powerText, value: of(power)},
		{title: "TEMP", width: 4, right: true, rank: 3, text: whole(temperature, "C"), value: of(temperature)},
		{title: "MHZ", width: 4, right: true, rank: 6, text: whole(smClock, ""), value: of(smClock)},
		{title: "USER", width: 8, grow: true, rank: 5, text: (*row).users},
		{title: "HELD DOWN BY", width: 14, rank: 10, text: func(r *row) string { return r.heldDown() }},
	}
	if len(states) > 1 {
		node := column[row]{title: "NODE", width: 10, grow: true, text: func(r *row) string { return states[r.node].name }}
		out = slices.Insert(out, 0, node)
	}
	return out
}

// stateOf returns a device's state in one word, and the reason.
func stateOf(states []*state, r *row) (state, why string) {
	if s := states[r.node]; !s.silent.IsZero() {
		return "silent", s.err
	}
	return r.Status.Word, r.Status.Why
}

// memoryText returns used and total memory in GiB.
func memoryText(r *row) string {
	if math.IsNaN(r.of[memoryTotal]) {
		return gigabytes(r.of[memoryUsed])
	}
	return gigabytes(r.of[memoryUsed]) + "/" + gigabytes(r.of[memoryTotal])
}

func powerText(r *row) string {
	if math.IsNaN(r.of[powerLimit]) {
		return number(r.of[power], 0, "W")
	}
	return number(r.of[power], 0, "") + "/" + number(r.of[powerLimit], 0, "W")
}

// reasons returns the names of the bits in a mask of clock event reasons.
func reasons(mask float64) string {
	if math.IsNaN(mask) || mask < 0 || mask >= 1<<53 {
		return "-"
	}
	var out []string
	for bit := range 53 {
		if uint64(mask)>>bit&1 == 0 {
			continue
		}
		name, ok := field.ClockReason(bit)
		if !ok {
			name = "bit " + strconv.Itoa(bit)
		}
		out = append(out, strings.ReplaceAll(name, "_", " "))
	}
	return cmp.Or(strings.Join(out, ", "), "nothing")
}

// nodeRow is a node with sums over its GPUs.
type nodeRow struct {
	*state
	index             int
	gpus, up          int
	util, used, total sum
	power             sum
	hottest           float64
}

// sum adds the known values.
type sum struct {
	of      float64
	n       int
	lacking bool // at least one device that is up has no value
}

func (s *sum) add(v float64) {
	if math.IsNaN(v) {
		s.lacking = true
		return
	}
	s.of += v
	s.n++
}

// text returns the sum, with > in front if some values are unknown.
func (s *sum) text(format func(float64) string) string {
	switch {
	case s.n == 0:
		return "-"
	case s.lacking:
		return ">" + format(s.of)
	}
	return format(s.of)
}

// value returns the sum, or NaN if no value is known.
func (s *sum) value() float64 {
	if s.n == 0 {
		return math.NaN()
	}
	return s.of
}

func newNodeRow(i int, s *state) nodeRow {
	n := nodeRow{state: s, index: i, hottest: math.NaN()}
	for j := range s.rows {
		r := &s.rows[j]
		if r.Kind != "gpu" {
			continue
		}
		n.gpus++
		if r.State != "up" || !s.silent.IsZero() {
			continue
		}
		n.up++
		n.util.add(r.of[util])
		n.used.add(r.of[memoryUsed])
		n.total.add(r.of[memoryTotal])
		n.power.add(r.of[power])
		if t := r.of[temperature]; !(n.hottest >= t) && !math.IsNaN(t) {
			n.hottest = t
		}
	}
	return n
}

func (n *nodeRow) mean() float64 { return n.util.value() / float64(n.util.n) }

// condition describes the node's state.
func (s *state) condition() string {
	switch {
	case !s.silent.IsZero():
		return "no answer since " + s.silent.Format(time.TimeOnly)
	case s.devices == nil:
		return "not asked yet"
	}
	return cmp.Or(s.health.State, "answers")
}

// trouble describes the node's problems, or returns "".
func (s *state) trouble() string {
	if !s.silent.IsZero() {
		return s.err
	}
	if s.devices == nil {
		return ""
	}
	if len(s.rows) == 0 {
		for _, c := range s.devices.Collectors {
			if !c.Up {
				return fmt.Sprintf("no device; collector %s: %s", c.Name, c.Reason)
			}
		}
		return "no device"
	}
	faulty, worst := 0, (*row)(nil)
	for i := range s.rows {
		r := &s.rows[i]
		if r.Status.Word == "up" || r.part() && r.Status.Word == r.State { // a part counts only with a verdict
			continue
		}
		if faulty++; worst == nil || rank[r.Status.Word] < rank[worst.Status.Word] {
			worst = r
		}
	}
	if worst == nil {
		if len(s.health.Reasons) > 0 {
			return s.health.Reasons[0]
		}
		return ""
	}
	text := fmt.Sprintf("GPU %s is %s: %s", worst.number(), worst.Status.Word, cmp.Or(worst.Status.Why, "no reason is known"))
	if faulty > 1 {
		text = fmt.Sprintf("%d faulty devices; %s", faulty, text)
	}
	return text
}

// rank orders words, the worst first; others are 0.
var rank = map[string]int{"failed": -1, "degraded": 1}

func (s *state) simulated() string {
	if s.devices != nil && s.devices.Simulated {
		return " (simulated)"
	}
	return ""
}

func nodeColumns() []column[nodeRow] {
	up := func(n *nodeRow) string {
		if n.devices == nil || !n.silent.IsZero() {
			return "-"
		}
		return fmt.Sprintf("%d/%d", n.up, n.gpus)
	}
	memory := func(n *nodeRow) string {
		if n.used.n == 0 || n.total.n == 0 {
			return n.used.text(gigabytes)
		}
		return n.used.text(gigabytes) + "/" + n.total.text(gigabytes)
	}
	return []column[nodeRow]{
		{title: "NODE", width: 12, grow: true, text: func(n *nodeRow) string { return n.name + n.simulated() }},
		{title: "STATE", width: 9, text: (*nodeRow).stateText},
		{title: "UP", width: 5, right: true, rank: 1, text: up, value: func(n *nodeRow) float64 { return float64(n.up) }},
		{title: "UTIL", width: 5, right: true, text: func(n *nodeRow) string { return number(n.mean(), 0, "%") }, value: (*nodeRow).mean},
		{title: "MEMORY", width: 10, right: true, rank: 2, text: memory, value: func(n *nodeRow) float64 { return n.used.value() }},
		{title: "POWER", width: 7, right: true, rank: 3, text: func(n *nodeRow) string {
			return n.power.text(func(v float64) string { return number(v, 0, "W") })
		}, value: func(n *nodeRow) float64 { return n.power.value() }},
		{title: "HOTTEST", width: 7, right: true, rank: 4, text: func(n *nodeRow) string { return number(n.hottest, 0, "C") }, value: func(n *nodeRow) float64 { return n.hottest }},
		{title: "WHAT IS WRONG", width: 12, grow: true, rank: 5, text: func(n *nodeRow) string { return cmp.Or(n.trouble(), "-") }},
	}
}

// stateText returns the state in short form, because the column is narrow.
func (n *nodeRow) stateText() string {
	if !n.silent.IsZero() {
		return "silent"
	}
	if n.devices == nil {
		return "-"
	}
	return n.condition()
}

// process is a process on a device.
type process struct {
	*apiv1.Process
	on *row
}

func processColumns(states []*state) []column[process] {
	memory := func(p *process) float64 { return orNaN(p.Memory) }
	busy := func(p *process) float64 { return orNaN(p.Busy) }
	out := []column[process]{
		{title: "GPU", width: 4, text: func(p *process) string { return p.on.number() }},
		{title: "PID", width: 8, right: true, text: func(p *process) string { return strconv.Itoa(p.PID) }, value: func(p *process) float64 { return float64(p.PID) }},
		{title: "NAME", width: 10, grow: true, text: func(p *process) string { return cmp.Or(p.Name, "-") }},
		{title: "MEMORY", width: 7, right: true, rank: 2, text: func(p *process) string { return gigabytes(memory(p)) }, value: memory},
		{title: "BUSY", width: 5, right: true, rank: 3, text: func(p *process) string { return number(busy(p), 0, "%") }, value: busy},
		{title: "OWNER", width: 10, grow: true, rank: 1, text: func(p *process) string {
			owner := p.Pod
			if owner == "" && p.Job != "" {
				owner = "job " + p.Job
			}
			return cmp.Or(owner, "-")
		}},
	}
	if len(states) > 1 {
		out = slices.Insert(out, 0, column[process]{title: "NODE", width: 10, grow: true, text: func(p *process) string { return states[p.on.node].name }})
	}
	return out
}

// orNaN returns *p, or NaN for nil.
func orNaN(p *float64) float64 {
	if p == nil {
		return math.NaN()
	}
	return *p
}

// fieldColumns returns the columns for one device's fields.
func fieldColumns() []column[apiv1.Field] {
	value := func(f *apiv1.Field) float64 { return orNaN(f.Value) }
	age := func(f *apiv1.Field) float64 { return orNaN(f.Age) }
	return []column[apiv1.Field]{
		{title: "FIELD", width: 24, grow: true, text: fieldName},
		{title: "VALUE", width: 12, right: true, text: func(f *apiv1.Field) string { return exact(value(f)) }, value: value},
		{title: "UNIT", width: 7, rank: 2, text: func(f *apiv1.Field) string { return f.Unit }},
		{title: "AGE", width: 6, right: true, rank: 1, text: func(f *apiv1.Field) string { return short(age(f)) }, value: age},
		{title: "WHY ABSENT", width: 16, grow: true, rank: 3, text: func(f *apiv1.Field) string {
			if f.Absent == nil {
				return ""
			}
			return cmp.Or(f.Absent.Detail, strings.ReplaceAll(f.Absent.Reason, "_", " "))
		}},
	}
}

func fieldName(f *apiv1.Field) string {
	out := f.Name
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		out += " " + name + "=" + f.Labels[name]
	}
	return out
}
