package field

import (
	"bytes"
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
	var rows bytes.Buffer
	filter = strings.ToLower(filter)
	for _, d := range index().all {
		if d.matches(filter) {
			fmt.Fprintf(&rows, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, d.Name, d.Kind, d.Level, dash(d.Unit), d.Cost, d.meaning())
		}
	}
	if rows.Len() == 0 {
		_, err := fmt.Fprintf(w, "no field matches %q\n", filter)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if _, err := fmt.Fprintf(t, "ID\tNAME\tKIND\tLEVEL\tUNIT\tCOST\tMEANING\n%s", &rows); err != nil {
		return err
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
