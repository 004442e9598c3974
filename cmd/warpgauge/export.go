package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/exporter"

	"github.com/urfave/cli/v3"

	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

func exportCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "Write the samples of a recording as OpenMetrics or CSV",
		ArgsUsage: "FILE",
		Description: `FILE is one of the flight recorder's (--recorder-directory, /api/v1/recordings).

openmetrics: the series of /metrics, each sample with its time stamp, for
    promtool tsdb create-blocks-from openmetrics FILE DIRECTORY
Histograms, counts of events and the exporter's own metrics are not in it.
csv: a line for each sample, in the unit in which it was read. A blank value was not
available at that time.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: "openmetrics", Usage: "openmetrics or csv."},
			&cli.StringFlag{Name: "output-file", Usage: "File to write, which must not be there yet.", DefaultText: "standard output"},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			write := map[string]func(io.Writer, *recorder.Recording) error{"openmetrics": exportOpenMetrics, "csv": exportCSV}[cmd.String("format")]
			if write == nil {
				return fmt.Errorf("--format is %q: write openmetrics or csv", cmd.String("format"))
			}
			r, err := openRecording(cmd)
			if err != nil {
				return err
			}
			name := cmd.String("output-file")
			if name == "" {
				return write(a.Out, r)
			}
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // the user's own file, by the umask
			if err != nil {
				return err
			}
			if err := write(f, r); err != nil {
				_ = f.Close() // the first error counts
				return fmt.Errorf("%w; %s is not whole", err, name)
			}
			return f.Close()
		},
	}
}

// exportOpenMetrics writes the series of the page.
func exportOpenMetrics(to io.Writer, r *recorder.Recording) error {
	tracks, users := tracksOf(r), usersOf(r)
	v := &view.View{}
	for i := range tracks {
		v.Sources = append(v.Sources, &tracks[i].source)
	}
	return exposition.WriteArchive(to, v, exposition.Options{Hostname: r.Hostname, Owners: &users}, func(source, column int) iter.Seq2[int64, float64] {
		return tracks[source].column(column)
	})
}

// exportCSV writes all series, samples of a driver's buffer, too.
func exportCSV(to io.Writer, r *recorder.Recording) error {
	gpus := make(map[string]string)
	for i := range r.Devices {
		gpus[r.Devices[i].Device.ID] = r.Devices[i].Device.GPU
	}
	b := bufio.NewWriter(to)
	w := csv.NewWriter(b)
	line := []string{"time", "gpu", "device", "field", "labels", "unit", "value", "buffered"}
	err := w.Write(line)
	for i := range r.Series {
		s := &r.Series[i]
		name, unit := fmt.Sprint(s.Field), ""
		if d, ok := field.ByID(s.Field); ok {
			name, unit = d.Name, d.Unit
		}
		var labels []string
		for _, l := range s.Labels {
			labels = append(labels, l.Name+"="+l.Value)
		}
		line = append(line[:0], "", gpus[s.Device], s.Device, name, strings.Join(labels, " "), unit, "", strconv.FormatBool(s.Buffered))
		for at, v := range s.Samples() {
			line[0], line[6] = time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z"), ""
			if !math.IsNaN(v) {
				line[6] = strconv.FormatFloat(v, 'g', -1, 64)
			}
			if err == nil {
				err = w.Write(line)
			}
		}
	}
	w.Flush()
	if err == nil {
		err = w.Error()
	}
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}
