package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/config"
)

// Checks of an exporter's answers.

func checkExporter(f *Facts, out *findings) {
	e := &f.exporter
	switch {
	case e.other != "":
		out.add(Problem, "stop the other program, or give warpgauge another --address", "%s answers at %s, which is not warpgauge", e.other, e.url)
	case e.devices != nil:
		v := e.devices.Version
		if v != f.Version {
			out.add(Note, "nothing; restart the exporter if it was meant to be this version", "the exporter at %s is version %s, doctor %s", e.url, v, f.Version)
			return
		}
		out.add(OK, "", "the exporter at %s answers, version %s", e.url, v)
	case e.err != nil && strings.Contains(e.err.Error(), apiv1.ErrNoAPI.Error()):
		out.add(Unknown, "upgrade the exporter if it is old; with --web-page=off it has no API", "the exporter at %s has no JSON API, so its devices are not known", e.url)
	case e.err != nil:
		out.add(Problem, "start it (systemctl start warpgauge), or name it with --url; its log says why it does not run. Without an exporter warpgauge devices reads the devices", "%v", e.err)
	}
}

// advice maps causes of collectors and devices to remedies. It omits causes that are not faults.
var advice = map[string]string{
	"hung_call":        "the driver hangs for this GPU: look for XIDs in the kernel log (dmesg); a reset of the GPU or a restart of the machine may be needed",
	"one_call":         "the driver hangs in one call for this GPU: look for XIDs in the kernel log (dmesg); a reset of the GPU may be needed",
	"blocked_call":     "the host engine, or the driver below it, does not answer: restart the engine, then see the kernel log (dmesg)",
	"stale_values":     "the library answers with old values: check the host engine (nv-hostengine), restart it",
	"error":            "see the error; if it persists, the log of the exporter and the kernel's",
	"lost":             "it fell off the bus (XID 79 in the kernel log): check power and seating, restart the machine",
	"vanished":         "if it was not taken away on purpose: see lost",
	"outdated":         "the driver was upgraded or reloaded while the exporter ran: restart the exporter if this stays",
	"child_exited":     "the process that reads the library has ended; the log says why. It is started again",
	"child_stuck":      "the process that reads the library was killed and does not end: it hangs in the driver; restart the machine",
	"version_mismatch": "install the same version of the DCGM library and of the host engine, then restart the host engine",
	"opening":          "the library has not opened yet. Without persistence mode that takes seconds for each GPU; if it takes longer the driver hangs: see the kernel log (dmesg)",
	"not_loaded":       "see what was looked for, and the checks of the driver and the library",
	"no_devices":       "see that the selection (-d, -s, -p) leaves devices, and that the container has the GPUs",
	"not_built_in":     "use a build that has the library: the released packages and images have all",
}

func checkCollectors(f *Facts, out *findings) {
	e := &f.exporter
	if e.devices == nil {
		return
	}
	served := map[string]bool{} // vendors with a collector that is up
	for _, c := range e.devices.Collectors {
		served[c.Vendor] = served[c.Vendor] || c.Up
	}
	for _, c := range e.devices.Collectors {
		d := f.Drivers[c.Vendor] // nil: simulated, or the probe did not end
		switch {
		case c.Up && c.Reason != "":
			const missing = "see the log of the exporter; MIG instances need permission: a container NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN"
			out.add(Problem, cmp.Or(advice[c.Cause], missing), "%s is in use: %s", c.Name, c.Reason)
		case c.Up:
			out.add(OK, "", "%s is in use", c.Name)
		case c.Cause == "standby" || c.Cause == "released":
			out.add(Note, "", "%s is not in use: %s", c.Name, c.Reason)
		case quiet(c.Cause) && strings.Contains(c.Reason, `host engine "`): // one that was asked for, whatever NVML serves
			out.add(Problem, "use an image with DCGM (the chart: image.variant=dcgm) or install its library, and start the host engine; or leave --remote-hostengine-info out",
				"the DCGM host engine is not in use: %s", c.Reason)
		case quiet(c.Cause) && (d == nil || len(d.GPUs) == 0 || served[c.Vendor]):
			out.add(OK, "", "%s is not in use: %s", c.Name, c.Reason)
		default:
			out.add(Problem, advice[c.Cause], "%s does not work: %s", c.Name, cmp.Or(c.Reason, c.Cause))
		}
		if taken(c.Reason) && !c.Up {
			out.add(Problem, endProfiler, "another program has the profiling hardware")
		}
	}
}

const endProfiler = "end the other profiler (Nsight, dcgmi profile), or pause with POST /-/profiling/pause while it is needed"

// taken reports whether an error means that another program uses the profiling hardware.
func taken(text string) bool {
	return strings.Contains(text, "profiling") && strings.Contains(text, "in use") || strings.Contains(text, "in use [DCGM")
}

// quiet reports whether a cause means that a collector has nothing to read on this machine.
func quiet(cause string) bool {
	return slices.Contains([]string{"not_built_in", "not_loaded", "no_devices", "nothing_to_read"}, cause)
}

func checkDevices(f *Facts, out *findings) {
	e := &f.exporter
	if e.devices == nil {
		return
	}
	gpus, stalled := 0, 0
	type group struct{ state, cause, reason string }
	by := map[group][]string{}
	for i := range e.devices.Devices {
		d := &e.devices.Devices[i]
		if d.Kind == "gpu" {
			gpus++
			if d.State == "stalled" {
				stalled++
			}
		}
		if d.Status.Word != "up" {
			k := group{d.Status.Word, d.Cause, d.Status.Why}
			by[k] = append(by[k], nameOf(d))
		}
	}
	keys := slices.SortedFunc(maps.Keys(by), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.state, b.state), cmp.Compare(a.cause, b.cause), cmp.Compare(a.reason, b.reason))
	})
	if gpus > 1 && stalled == gpus {
		out.add(Problem, "the driver, or with DCGM the host engine, hangs: see the kernel log, restart the host engine, at last the machine", "all %d GPUs are stalled", gpus)
	}
	for _, k := range keys {
		s := Problem
		if k.state == "released" || k.state == "starting" || k.cause == "starting" {
			s = Note
		}
		out.add(s, cmp.Or(advice[k.cause], "see docs/health.md"), "%s: %s: %s", k.state, list(by[k]), cmp.Or(k.reason, "no reason is known"))
	}
	present := 0
	for _, d := range f.Drivers {
		present += len(d.GPUs)
	}
	switch {
	case len(e.devices.Devices) == 0 && present > 0:
		out.add(Problem, "see the checks of driver, device nodes and collectors", "no device, although the PCI bus has %s", config.Counted(present, "GPU"))
	case len(e.devices.Devices) == 0:
		out.add(Note, "nothing, if this machine has no GPU", "no device")
	case len(keys) == 0:
		text := config.Counted(gpus, "GPU")
		if e.devices.Simulated {
			text += " (simulated)"
		}
		out.add(OK, "", "%s, all devices are up", text)
	}
}

// nameOf returns a short name of a device.
func nameOf(d *apiv1.Device) string {
	switch {
	case d.Kind == "gpu":
		return "GPU " + d.GPU
	case d.GPU != "":
		return fmt.Sprintf("%s %s of GPU %s", d.Kind, d.ID, d.GPU)
	}
	return d.Kind + " " + d.ID
}

// ofCollector matches a reason why the exporter is not ready that names a collector.
var ofCollector = regexp.MustCompile(`^collector (\S+): `)

func checkHealth(f *Facts, out *findings) {
	h := f.exporter.health
	if h == nil {
		return
	}
	reasons := slices.DeleteFunc(slices.Clone(h.Reasons), func(r string) bool {
		m := ofCollector.FindStringSubmatch(r)
		return m != nil && (f.exporter.devices == nil || !slices.ContainsFunc(f.exporter.devices.Collectors, func(c apiv1.Collector) bool {
			return c.Name == m[1] && c.Cause == "nothing_to_read" // the check of collectors reports other causes
		}))
	})
	for _, r := range reasons {
		out.add(Problem, "see docs/operations.md#paths", "not ready: %s", r)
	}
	if h.State == "ok" && len(reasons) == 0 {
		out.add(OK, "", "the verdict on the devices is %s", h.State)
	}
}

func checkList(f *Facts, out *findings) {
	l := f.exporter.list
	if l == nil {
		return
	}
	if l.LastError != "" {
		out.add(Problem, "correct the file: warpgauge check FILE lists what is wrong. Until then the list before it is in service", "the last reload failed: %s", l.LastError)
		return
	}
	if len(l.Fields) == 0 {
		out.add(Problem, "name a list with fields (-f)", "the list from %s has no field", l.Source)
	} else {
		out.add(OK, "", "%s from %s", config.Counted(len(l.Fields), "field"), l.Source)
	}
	checkDelivery(l.Remote, out)
}

// checkDelivery checks the lists from a server; r is nil without a server.
func checkDelivery(r *apiv1.RemoteList, out *findings) {
	if r == nil {
		return
	}
	text := r.Text
	for _, line := range r.Refused {
		if at := ""; !strings.Contains(text, line.Text) {
			if line.Line > 0 {
				at = fmt.Sprintf("line %d: ", line.Line)
			}
			text += "; " + at + line.Text
		}
	}
	switch {
	case r.Status == "refused":
		out.add(Problem, "correct the list on the server: warpgauge check --guard FILE lists what this node refuses. The list before stays in service", "the server's list %.12s: %s", r.Hash, text)
	case r.Status == "failed":
		out.add(Problem, "see the log of the exporter. The list before stays in service", "the server's list %.12s cannot be put into service: %s", r.Hash, text)
	}
	if r.Unreachable != "" {
		out.add(Problem, "see --remote-url, its credentials and the server. The list before stays in service", "the server of lists cannot be used: %s", r.Unreachable)
	}
	if r.Unkept != "" {
		out.add(Problem, "see --remote-directory: a start without the server has an older list", "the server's list is not kept: %s", r.Unkept)
	}
}

// adviceOn maps reasons of absent values to remedies. Other reasons are normal, or follow from a finding about devices.
var adviceOn = map[string]struct {
	Severity
	do string
}{
	"permission":  {Problem, "give the exporter the permission: profiling takes CAP_SYS_ADMIN or a driver with NVreg_RestrictProfilingToAdminUsers=0; or take the fields out of the list"},
	"no_symbol":   {Note, "upgrade the driver if the values are needed: MIG and profiling fields need newer ones"},
	"implausible": {Note, "report it: the library returned values that cannot be"},
	"unknown":     {Note, ""},
}

func checkAbsent(f *Facts, out *findings) {
	type why struct{ reason, detail string }
	by, fields := map[why]map[string]bool{}, 0
	f.eachField(func(d *apiv1.Device, v *apiv1.Field) {
		fields++
		if v.Absent == nil || adviceOn[v.Absent.Reason].Severity == "" {
			return
		}
		k := why{v.Absent.Reason, v.Absent.Detail}
		if by[k] == nil {
			by[k] = map[string]bool{}
		}
		by[k][v.Name] = true
	})
	keys := slices.SortedFunc(maps.Keys(by), func(a, b why) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.detail, b.detail))
	})
	for _, k := range keys[:min(len(keys), 20)] {
		a := adviceOn[k.reason]
		do := a.do
		if taken(k.detail) {
			do = endProfiler
		}
		out.add(a.Severity, do, "no value (%s) of %s", cmp.Or(k.detail, strings.ReplaceAll(k.reason, "_", " ")), list(slices.Sorted(maps.Keys(by[k]))))
	}
	if len(by) == 0 && fields > 0 {
		out.add(OK, "", "no value is absent for a reason that could be put right")
	}
}

func checkMappings(f *Facts, out *findings) {
	all, failed := mapping.FindAllStringSubmatch(f.exporter.own, -1), 0
	for _, m := range all {
		if m[2] == "0" {
			failed++
			out.add(Problem, cmp.Or(doOfMapping[m[1]], "the log says why"), "the exporter gets no answer for the mapping %s: who uses a device is as old as its last answer", m[1])
		}
	}
	if len(all) > 0 && failed == 0 {
		out.add(OK, "", "%s of users to devices get answers", config.Counted(len(all), "mapping"))
	}
}

// mapping matches the metric of a client that reads the users of devices.
var mapping = regexp.MustCompile(`(?m)^warpgauge_mapping_up\{[^}]*mapping="([a-z_]+)"[^}]*\} ([01])$`)

var doOfMapping = map[string]string{
	"pod_resources":   "mount /var/lib/kubelet/pod-resources of the host into the pod at the same place (the chart does), or name the socket with --pod-resources-kubelet-socket; the log says why",
	"pod_metadata":    "see that the service account may list pods of its node (the chart's ClusterRole), and that the API server is reachable; the log says why",
	"resource_slices": "see that the service account may list resourceslices (the chart's ClusterRole); the log says why",
	"hpc_jobs":        "see that the scheduler's prolog and epilog write the job files; the log says why",
	"processes":       "give the exporter the PIDs of the machine: hostPID: true; the log says why",
}

func checkLog(f *Facts, out *findings) {
	if f.logError != nil {
		out.add(Unknown, "in Kubernetes add the output of kubectl logs to the bundle by hand; elsewhere run doctor as root or in group systemd-journal", "the exporter's log: %v", f.logError)
		return
	}
	errors := 0
	last := ""
	for l := range strings.Lines(f.log) {
		if strings.Contains(l, " ERROR ") || strings.Contains(l, `"level":"error"`) {
			errors++
			last = strings.TrimSpace(l)
		}
	}
	if errors > 0 {
		out.add(Note, "see the log", "%s in the end of the log, the last: %s", config.Counted(errors, "error"), last)
	}
}

func checkUnread(f *Facts, out *findings) {
	for _, u := range f.Unread {
		out.add(Unknown, "", "%s: %s", u.What, u.Why)
	}
}

// eachField calls f with every field of every device that the exporter reports.
func (f *Facts) eachField(call func(*apiv1.Device, *apiv1.Field)) {
	if f.exporter.fields == nil || f.exporter.devices == nil {
		return
	}
	byID := map[string]*apiv1.Device{}
	for i := range f.exporter.devices.Devices {
		byID[f.exporter.devices.Devices[i].ID] = &f.exporter.devices.Devices[i]
	}
	for i := range f.exporter.fields.Devices {
		of := &f.exporter.fields.Devices[i]
		if d := byID[of.ID]; d != nil {
			for j := range of.Fields {
				call(d, &of.Fields[j])
			}
		}
	}
}
