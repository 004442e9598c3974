package top

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report holds one answer of each node, for scripts. It omits unknown values.
type Report struct {
	Time    time.Time      `json:"time"`
	Nodes   []NodeReport   `json:"nodes"`
	Devices []DeviceReport `json:"devices"`

	states []*state
	rows   []row
}

// NodeReport is a node of a Report.
type NodeReport struct {
	Node      string `json:"node"`
	State     string `json:"state,omitempty"` // health: ok, degraded, failed, unknown
	Simulated bool   `json:"simulated,omitempty"`
	Error     string `json:"error,omitempty"`  // why it does not answer
	Reason    string `json:"reason,omitempty"` // most important problem
}

// DeviceReport is a GPU or an instance of one.
type DeviceReport struct {
	Node        string   `json:"node"`
	GPU         string   `json:"gpu"`
	ID          string   `json:"id"`
	Model       string   `json:"model,omitempty"`
	Simulated   bool     `json:"simulated,omitempty"`
	State       string   `json:"state"`
	Reason      string   `json:"reason,omitempty"`
	Utilization *float64 `json:"utilization_percent,omitempty"`
	Tensor      *float64 `json:"tensor_active_percent,omitempty"`
	MemoryUsed  *float64 `json:"memory_used_bytes,omitempty"`
	MemoryTotal *float64 `json:"memory_total_bytes,omitempty"`
	Power       *float64 `json:"power_watts,omitempty"`
	PowerLimit  *float64 `json:"power_limit_watts,omitempty"`
	Temperature *float64 `json:"temperature_celsius,omitempty"`
	Clock       *float64 `json:"clock_mhz,omitempty"`
	Users       []string `json:"users,omitempty"`
}

// Once polls each node once.
func Once(ctx context.Context, targets []Target) *Report {
	f := newFleet(targets, time.Second)
	f.once(ctx)
	r := &Report{Time: time.Now(), Nodes: []NodeReport{}, Devices: []DeviceReport{}, states: f.states()}
	for i, s := range r.states {
		n := NodeReport{Node: clean(s.name), Simulated: s.simulated() != "", Error: s.err}
		if s.err == "" {
			n.Reason, n.State = clean(s.trouble()), s.health.State
		}
		r.Nodes = append(r.Nodes, n)
		for j := range s.rows {
			if row := s.rows[j]; !row.part() {
				row.node = i
				r.rows = append(r.rows, row)
				r.Devices = append(r.Devices, deviceReport(n.Node, r.states, &row))
			}
		}
	}
	return r
}

func deviceReport(node string, states []*state, r *row) DeviceReport {
	state, why := stateOf(states, r)
	d := DeviceReport{Node: node, GPU: r.number(), ID: r.ID, Model: r.Model, Simulated: r.Simulated, State: state, Reason: why}
	for _, to := range []struct {
		at **float64
		quantity
	}{
		{&d.Utilization, util}, {&d.Tensor, tensor}, {&d.MemoryUsed, memoryUsed}, {&d.MemoryTotal, memoryTotal},
		{&d.Power, power}, {&d.PowerLimit, powerLimit}, {&d.Temperature, temperature}, {&d.Clock, smClock},
	} {
		if v := r.of[to.quantity]; !math.IsNaN(v) {
			*to.at = &v
		}
	}
	for i := range r.Users {
		d.Users = append(d.Users, user(&r.Users[i]))
	}
	d.Users = unique(d.Users)
	return d
}

// Silent reports whether a node does not answer.
func (r *Report) Silent() bool {
	return slices.ContainsFunc(r.Nodes, func(n NodeReport) bool { return n.Error != "" })
}

// Table writes the devices, and the nodes that do not answer.
func (r *Report) Table(w io.Writer) error {
	columns := deviceColumns(r.states)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	write := func(text func(*column[row]) string) {
		var cells []string
		for i := range columns {
			cells = append(cells, clean(text(&columns[i])))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if len(r.rows) > 0 {
		write(func(c *column[row]) string { return c.title })
	}
	for i := range r.rows {
		write(func(c *column[row]) string { return c.text(&r.rows[i]) })
	}
	err := t.Flush()
	for i, n := range r.Nodes {
		switch {
		case n.Error != "":
			_, err = fmt.Fprintf(w, "%s does not answer: %s\n", n.Node, n.Error)
		case n.Reason != "":
			_, err = fmt.Fprintf(w, "%s: %s\n", n.Node, n.Reason)
		}
		if s := r.states[i].simulated(); s != "" {
			_, err = fmt.Fprintf(w, "%s%s\n", n.Node, s)
		}
	}
	return err
}
