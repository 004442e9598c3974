package field

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the fields whose id, name, alias, unit or help contains
// filter, case aside, as aligned text; all for an empty filter. It says so where
// there is none.
func WriteTable(w io.Writer, filter string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	filter = strings.ToLower(filter)
	n := 0
	for _, d := range index().all {
		if !d.matches(filter) {
			continue
		}
		if n == 0 {
			fmt.Fprintln(t, "ID\tNAME\tKIND\tLEVEL\tUNIT\tCOST\tMEANING")
		}
		n++
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, d.Name, d.Kind, d.Level, dash(d.Unit), d.Cost, d.meaning())
	}
	if n == 0 {
		fmt.Fprintf(t, "no field matches %q\n", filter)
	}
	return t.Flush()
}

func (d *Descriptor) matches(filter string) bool {
	all := strings.Join(append([]string{strconv.Itoa(int(d.ID)), d.Name, d.Unit, d.Help}, d.Aliases...), "\n")
	return strings.Contains(strings.ToLower(all), filter)
}

// meaning is the help text, and for a multiple what it is of.
func (d *Descriptor) meaning() string {
	if d.Factor == 0 {
		return d.Help
	}
	return fmt.Sprintf("%s (%s × %v)", d.Help, index().byID[d.Of].Name, d.Factor)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
