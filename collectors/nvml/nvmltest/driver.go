package nvmltest

import (
	"fmt"
	"strconv"
	"strings"
)

// driver is one driver branch.
type driver struct {
	branch  int
	version string // a released version
	cuda    int    // as cudaDriverGetVersion returns it
	fields  int    // NVML_FI_MAX
	gpm     int    // NVML_GPM_METRIC_MAX
}

// drivers lists the branches. NVML_FI_MAX and NVML_GPM_METRIC_MAX come from nvml.h in the branch's CUDA toolkit, as
// kept in go-nvml's history: https://github.com/NVIDIA/go-nvml/commits/main/gen/nvml/nvml.h
var drivers = []driver{
	{470, "470.256.02", 11040, 161, 0},
	{510, "510.108.03", 11060, 161, 0},
	{515, "515.105.01", 11070, 161, 0},
	{525, "525.147.05", 12000, 170, 98},
	{535, "535.183.01", 12020, 197, 98},
	{545, "545.29.06", 12030, 197, 98},
	{550, "550.54.15", 12040, 200, 98},
	{560, "560.35.03", 12060, 230, 98},
	{570, "570.124.06", 12080, 269, 98},
	{575, "575.57.08", 12090, 274, 210},
	{580, "580.65.06", 13000, 274, 210},
	{590, "590.44.01", 13010, 289, 210},
	{610, "610.43.02", 13030, 303, 333},
}

func findDriver(name string) (driver, error) {
	major, rest, full := strings.Cut(name, ".")
	for _, d := range drivers {
		if strconv.Itoa(d.branch) != major {
			continue
		}
		if full && rest != "" {
			d.version = name
		}
		return d, nil
	}
	return driver{}, fmt.Errorf("no simulated driver %q", name)
}

// nvmlVersion returns the result of nvmlSystemGetNVMLVersion.
func (d driver) nvmlVersion() string { return fmt.Sprintf("%d.%s", d.cuda/1000, d.version) }
