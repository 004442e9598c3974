package rocm

import (
	"strconv"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// throttleSpecs: boards up to MI200 and Radeons tell bits, MI300 from revision
// 1.6 on how many cycles it was held back.
func throttleSpecs() []spec {
	const cycles = gm.AccumulationCounter
	count := func(op op, f ...gm.Field) term { return over(op, 1, 0, 1, f...) }
	status := func(mask uint64) term { return count(opMask, gm.IndepThrottleStatus).bits(mask) }
	out := []spec{
		one(field.ClockEventReasons, count(opReasons, gm.IndepThrottleStatus), count(opMovedReasons, residencyFields...)),
		one(dcgmPowerViolation, count(opHeld, cycles, gm.PPTResidency)),
		one(dcgmThermalViolation, count(opHeld, cycles, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency)),
		one(field.AMDAccumulationCycles, metric(cycles, 0, 1)),
		{field.AMDThrottleActive, label("reason", "power"), []term{status(throttlePower), count(opMoved, gm.PPTResidency)}},
		{field.AMDThrottleActive, label("reason", "current"), []term{status(throttleCurrent)}},
		{field.AMDThrottleActive, label("reason", "thermal"), []term{
			status(throttleThermal), count(opMoved, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency),
		}},
		{field.AMDThrottleActive, label("reason", "prochot"), []term{status(throttleProchot), count(opMoved, gm.ProchotResidency)}},
	}
	residency := func(reason string, fields ...gm.Field) {
		var terms []term
		for _, f := range fields {
			terms = append(terms, metric(f, 0, 1))
		}
		out = append(out, spec{field.AMDThrottleResidency, label("reason", reason), terms})
	}
	residency("prochot", gm.ProchotResidency, gm.ResidencyProchot)
	residency("ppt", gm.PPTResidency)
	residency("socket_thermal", gm.SocketThmResidency)
	residency("vr_thermal", gm.VRThmResidency)
	residency("hbm_thermal", gm.HBMThmResidency)
	residency("spl", gm.ResidencySPL) // these of APUs
	residency("fppt", gm.ResidencyFPPT)
	residency("sppt", gm.ResidencySPPT)
	residency("core_thermal", gm.ResidencyThmCore)
	residency("gfx_thermal", gm.ResidencyThmGfx)
	residency("soc_thermal", gm.ResidencyThmSoc)
	return out
}

// fabricSpecs: what a GPU writes over XGMI it sends.
func fabricSpecs() []spec {
	rate := func(scale float64, f ...gm.Field) term { return over(opRate, scale, 0, gm.XGMILinks, f...) }
	out := []spec{
		one(dcgmLinksTotal, rate(toMB, gm.XGMIReadAcc, gm.XGMIWriteAcc)),
		one(dcgmLinksTx, rate(toMB, gm.XGMIWriteAcc)),
		one(dcgmLinksRx, rate(toMB, gm.XGMIReadAcc)),
		one(dcgmLinksTxBytes, rate(toBytes, gm.XGMIWriteAcc)),
		one(dcgmLinksRxBytes, rate(toBytes, gm.XGMIReadAcc)),
		one(field.AMDXGMILinkWidth, metric(gm.XGMILinkWidth, 0, 1)),
		one(field.AMDXGMILinkSpeed, metric(gm.XGMILinkSpeed, 0, fromGB)),
	}
	for i := range gm.XGMILinks {
		link := collector.Label{Name: "link", Value: strconv.Itoa(i)}
		out = append(out,
			spec{field.AMDXGMIBytes, []collector.Label{{Name: "direction", Value: "read"}, link}, []term{metric(gm.XGMIReadAcc, i, toBytes)}},
			spec{field.AMDXGMIBytes, []collector.Label{{Name: "direction", Value: "write"}, link}, []term{metric(gm.XGMIWriteAcc, i, toBytes)}},
			spec{field.AMDXGMILinkUp, []collector.Label{link}, []term{metric(gm.XGMILinkStatus, i, 1)}})
	}
	return out
}

// linkSpecs are the columns of XGMI link i as a device of its own.
func linkSpecs(i int) []spec {
	rate := func(f ...gm.Field) term { return over(opRate, toMB, i, 1, f...) }
	return []spec{
		one(dcgmLink, rate(gm.XGMIReadAcc, gm.XGMIWriteAcc)),
		one(dcgmLinkTx, rate(gm.XGMIWriteAcc)),
		one(dcgmLinkRx, rate(gm.XGMIReadAcc)),
	}
}

func hardwareSpecs(g *raw.GPU) []spec {
	out := []spec{
		one(dcgmFan, read(raw.FanDuty, 0, toPercent)),
		one(field.AMDFan, read(raw.FanRPM, 0, 1), metric(gm.FanSpeed, 0, 1)),
		{field.AMDVoltage, label("rail", "gfx"), []term{read(raw.Voltage, 0, 1), metric(gm.VoltageGfx, 0, toVolt)}},
		{field.AMDVoltage, label("rail", "soc"), []term{metric(gm.VoltageSoc, 0, toVolt)}},
		{field.AMDVoltage, label("rail", "mem"), []term{metric(gm.VoltageMem, 0, toVolt)}},
	}
	if len(g.Instances) < 2 { // else they are the instances'
		out = append(out, engineSpecs(0)...)
	}
	return out
}

// engineSpecs are the engines of a partition. Revisions before 1.6 know none.
func engineSpecs(partition int) []spec {
	var out []spec
	engine := func(id field.ID, name string, i int, f gm.Field, perPartition int, whole gm.Field) {
		terms := []term{metric(f, partition*perPartition+i, fromPercent)}
		if partition == 0 && i < whole.Len() {
			terms = append(terms, metric(whole, i, fromPercent))
		}
		out = append(out, spec{id, label(name, strconv.Itoa(i)), terms})
	}
	for i := range gm.VCNs {
		engine(field.AMDVCNBusy, "instance", i, gm.XCPVCNBusy, gm.VCNs, gm.VCNActivity)
	}
	for i := range gm.JPEGsOfXCP {
		engine(field.AMDJPEGBusy, "instance", i, gm.XCPJPEGBusy, gm.JPEGsOfXCP, gm.JPEGActivity)
	}
	for i := range gm.XCCs {
		at := partition*gm.XCCs + i
		xcc := collector.Label{Name: "xcc", Value: strconv.Itoa(i)}
		out = append(out,
			spec{field.AMDXCCBusy, []collector.Label{xcc}, []term{metric(gm.XCPGfxBusy, at, fromPercent)}},
			spec{field.AMDXCCBusySeconds, []collector.Label{xcc}, []term{metric(gm.XCPGfxBusyAcc, at, toBusy)}})
		for _, r := range []struct {
			name string
			f    gm.Field
		}{
			{"host_limit", gm.XCPBelowHostLimit}, {"power", gm.XCPBelowLimitPPT}, {"thermal", gm.XCPBelowLimitThm},
			{"low_utilization", gm.XCPLowUtilization}, {"any", gm.XCPBelowLimitTotal},
		} {
			out = append(out, spec{field.AMDBelowLimit, []collector.Label{{Name: "reason", Value: r.name}, xcc}, []term{metric(r.f, at, 1)}})
		}
	}
	return out
}

// processSpecs are of the processes on an instance, or on the whole GPU.
func processSpecs(index uint8, units int) []spec {
	out := []spec{
		one(field.AMDProcesses, read(raw.Processes, index, 1)),
		one(field.AMDProcessMemory, read(raw.ProcessMemory, index, 1)),
	}
	if units > 0 {
		out = append(out, fixed(field.AMDComputeUnits, float64(units)),
			one(field.AMDOccupancy, read(raw.ProcessUnits, index, 1/float64(units))))
	}
	return out
}

// instanceSpecs are the columns of a partition: what the driver and KFD tell of
// it alone. The rest is the board's.
func instanceSpecs(i raw.Instance) []spec {
	index := uint8(i.ID)
	total := raw.Reading{Kind: raw.InstanceTotal, Index: index}
	used := raw.Reading{Kind: raw.ProcessMemory, Index: index}
	out := []spec{
		one(dcgmFBTotal, read(raw.InstanceTotal, index, toMiB).told()),
		one(dcgmFBUsed, read(raw.ProcessMemory, index, toMiB)),
		one(dcgmFBFree, pair(opFree, total, used, toMiB)),
		one(dcgmFBUsedRatio, pair(opShare, used, total, 1)),
		one(dcgmEngineActive, over(opMeanRate, toBusy, i.ID*gm.XCCs, gm.XCCs, gm.XCPGfxBusyAcc)),
	}
	out = append(out, engineSpecs(i.ID)...)
	return append(out, processSpecs(index, i.Units)...)
}
