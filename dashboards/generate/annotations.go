package main

import "strings"

// annotate marks events of the nodes or GPUs that labels select: an XID or a driver that is new in this minute, and the
// time of a new list. It evaluates each once a minute.
func (b *builder) annotate(labels string) {
	add := func(name, color, title, expr string, valueIsTime bool) {
		b.d.Annotations["list"] = append(b.d.Annotations["list"], map[string]any{ // the data source's fields: expr and what follows it here
			"name": name, "enable": true, "iconColor": color, "datasource": prometheus, "expr": bothGenerations(strings.ReplaceAll(expr, "S}", labels+"}")), "step": "60s",
			"titleFormat": title, "textFormat": "{{instance}}", "tagKeys": "instance", "useValueForTime": valueIsTime,
		})
	}
	const xid = `max by (cluster, job, instance, gpu, err_code, err_msg)`
	add("XIDs", "red", "XID {{err_code}} on GPU {{gpu}}: {{err_msg}}",
		xid+` (DCGM_FI_DEV_XID_ERRORS{err_code!="0", S}) unless `+xid+` (DCGM_FI_DEV_XID_ERRORS{S} offset 1m) and on (cluster, job, instance, gpu) (DCGM_FI_DEV_GPU_TEMP{S} offset 1m)`, false)
	add("Field lists", "blue", "Field list applied: start, reload or server", `warpgauge_list_applied_timestamp_seconds{`+nodeOnly(labels)+`} * 1000`, true)
	const driver = `count by (cluster, job, instance, driver)`
	add("Driver changes", "purple", "Driver {{driver}}",
		driver+` (`+driverOf(`(DCGM_FI_DEV_GPU_TEMP{S})`)+`) unless `+driver+` (`+driverOf(`(last_over_time(DCGM_FI_DEV_GPU_TEMP{S}[1h] offset 1m))`)+
			`) and on (cluster, job, instance) (last_over_time(DCGM_FI_DEV_GPU_TEMP{S}[1h] offset 1m))`, false)
}

// nodeOnly drops the device selectors, because exporter metrics lack those labels.
func nodeOnly(labels string) string {
	return strings.NewReplacer(`, gpu=~"$gpu"`, "", `, modelName=~"$model"`, "").Replace(labels)
}
