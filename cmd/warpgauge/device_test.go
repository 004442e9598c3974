package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
)

const reasonsCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, t
DCGM_FI_DEV_POWER_USAGE, gauge, p
DCGM_FI_DEV_GPU_UTIL, gauge, u
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, e
amd_gpu_voltage_volts, gauge, v
DCGM_EXP_XID_ERRORS_COUNT, gauge, x
DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS, gauge, s
DCGM_FI_DRIVER_VERSION, label, d
`

const reasonsSpec = `faults:
- {kind: lost, device: 1}
- {kind: value, device: 0, field: DCGM_FI_DEV_GPU_UTIL, value: 808000000}
- {kind: blank, device: 2, field: DCGM_FI_DEV_POWER_USAGE}
`

// simulatedReasons returns flags for three GPUs with faults, and the GPUs' ids.
func simulatedReasons(t *testing.T, args ...string) (flags, ids []string) {
	t.Helper()
	gpus, _ := simulatedDevices(t, "rtx4090", 3)
	for _, d := range gpus {
		ids = append(ids, d.ID)
	}
	spec := tempFile(t, "spec.yaml", reasonsSpec)
	return simulated(append(args, "--fake-profile=rtx4090", "--fake-devices=3", "--fake-spec="+spec)...), ids
}

func TestCheckSaysWhy(t *testing.T) {
	csv := tempFile(t, "reasons.csv", reasonsCSV)
	flags, _ := simulatedReasons(t, "check", csv)
	want := csv + `: 8 fields, 0 errors, 0 warnings
fake: supplies 1 to 4 of 7 fields for 3 devices of kind gpu
fake: reads 8 fields in addition for health (--health=off: none): DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION, DCGM_FI_DEV_INFOROM_CONFIG_VALID, DCGM_FI_DEV_GPU_TEMP_LIMIT, DCGM_FI_DEV_SLOWDOWN_TEMP, DCGM_FI_DEV_CLOCKS_EVENT_REASONS, DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, DCGM_EXP_GPU_HEALTH_STATUS

WITHOUT VALUE                      REASON       DEVICES    DETAIL
DCGM_EXP_XID_ERRORS_COUNT          device_lost  gpu 1      simulated fault: device lost
DCGM_FI_DEV_GPU_TEMP               device_lost  gpu 1      simulated fault: device lost
DCGM_FI_DEV_GPU_UTIL               implausible  gpu 0      the library says 8.08e+08, which is outside of 0 to 100 %
DCGM_FI_DEV_GPU_UTIL               device_lost  gpu 1      simulated fault: device lost
DCGM_FI_DEV_POWER_USAGE            device_lost  gpu 1      simulated fault: device lost
DCGM_FI_DEV_POWER_USAGE            blank        gpu 2      a simulated fault blanks it
DCGM_FI_PROF_GR_ENGINE_ACTIVE      unsupported  every gpu  the simulated gpu does not have it
amd_gpu_voltage_volts              unsupported  every gpu  only AMD GPUs have it
DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS  unsupported  -          no collector in use has a device of the kind switch
`
	o := execute(t, nil, flags...)
	if diff := cmp.Diff(want, o.Out); diff != "" || o.Code != 0 {
		t.Errorf("exit code %d, output (-want +got):\n%s", o.Code, diff)
	}
	amd := execute(t, nil, simulated("check", csv, "--fake-profile=mi300x", "--field-names=amd", "--health=off")...)
	testkit.Has(t, "with the names of AMD's exporter", amd.Out, "in addition for --field-names: ")
	testkit.Lacks(t, "with the names of AMD's exporter", amd.Out, "for health")

	type absent struct{ Field, Reason, Detail string }
	var got struct {
		Devices []struct {
			Supplied, Asked int
			Absent          []absent
		}
		Nowhere []absent
	}
	must(t, json.Unmarshal([]byte(execute(t, nil, append(flags, "--output=json")...).Out), &got))
	testkit.ErrorIf(t, len(got.Devices) != 3 || got.Devices[2].Supplied != 4 || got.Devices[2].Asked != 7 || len(got.Nowhere) != 1, "JSON: %+v", got)
	wantRows := []absent{
		{"DCGM_FI_DEV_GPU_UTIL", "implausible", "the library says 8.08e+08, which is outside of 0 to 100 %"},
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "unsupported", "the simulated gpu does not have it"},
		{"amd_gpu_voltage_volts", "unsupported", "only AMD GPUs have it"},
	}
	testkit.Equal(t, "JSON of GPU 0", wantRows, got.Devices[0].Absent)
}

func TestFieldsOfOneGPU(t *testing.T) {
	csv := tempFile(t, "reasons.csv", reasonsCSV)
	flags, ids := simulatedReasons(t, "devices", "--url=none", "-f", csv)
	f := func(code int, args []string, texts ...string) outcome {
		t.Helper()
		o := execute(t, nil, append(flags, args...)...)
		o.Want(t, code, texts...)
		return o
	}
	gpus, _ := simulatedDevices(t, "rtx4090", 3)
	for _, name := range []string{"0", ids[0], gpus[0].PCIBusID, strings.ToLower(strings.TrimPrefix(gpus[0].PCIBusID, "0000"))} {
		o := f(0, []string{name}, "gpu 0, "+ids[0]+", by fake\n", "\nDCGM_FI_DEV_GPU_TEMP ", "implausible: the library says 8.08e+08", "-simulated ", `XID_ERRORS_COUNT{window_size_in_ms="300000"}  0 `)
		testkit.Lacks(t, "devices "+name, o.Out, ids[1])
	}
	f(0, []string{"1"}, "device_lost: simulated fault: device lost")
	one := f(0, []string{"all", "DCGM_FI_DEV_POWER_*"}, "\nDCGM_FI_DEV_POWER_USAGE  -      W     blank: a simulated fault blanks it\n")
	testkit.Times(t, 3, one.Out, "\nDCGM_FI_DEV_POWER_USAGE ")
	f(1, []string{"0", "DCGM_FI_DEV_FAN_SPEED"}, "not_listed: the field list does not have it")
	f(1, []string{"0", "DCGM_FI_DEV_FAN_SPED"}, "not_listed: there is no such field: did you mean DCGM_FI_DEV_FAN_SPEED?")
	f(1, []string{"7"}, `no device is "7"`)
}

// The page has the metric only on request.
func TestAbsentFieldsOnThePage(t *testing.T) {
	csv := tempFile(t, "reasons.csv", reasonsCSV)
	flags, ids := simulatedReasons(t, "once", "--url=none", "-f", csv)
	line := `warpgauge_field_absent{device="` + ids[1] + `",field="DCGM_FI_DEV_GPU_TEMP",reason="device_lost"} 1`
	testkit.Lacks(t, "without --absent-fields", execute(t, nil, flags...).Out, "warpgauge_field_absent")
	execute(t, nil, append(flags, "--absent-fields", "--recorder-after=9s")...).Want(t, 0, "--recorder-after has no effect without", "GPU 1 ("+ids[1]+") is lost: simulated fault: device lost\n", line, `field="DCGM_FI_DEV_GPU_UTIL",reason="implausible"} 1`, "\nwarpgauge_field_absent_left_out 0\n")
}
